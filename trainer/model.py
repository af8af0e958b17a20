"""A decoder-only transformer over bytes, small enough for a CPU and built like the large ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from trainer.config import TrainerConfig

VOCABULARY = 256


class Block(nn.Module):
    """Pre-norm causal attention and a feed-forward layer. Shapes: (batch, time, width) in and out."""

    def __init__(self, config: TrainerConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.dropout = config.dropout
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.feed_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """One block of the decoder."""
        x = x + F.dropout(self._attend(self.attention_norm(x)), self.dropout, self.training)
        return x + F.dropout(self.feed(self.feed_norm(x)), self.dropout, self.training)

    def _attend(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, time, width))
        return out


class Decoder(nn.Module):
    """Token and position embeddings, blocks, and a head that shares no weight with the embedding."""

    def __init__(self, config: TrainerConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, config.width)
        self.positions = nn.Embedding(config.sequence_length, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (batch, time) to logits (batch, time, vocabulary)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def next_token_loss(model: nn.Module, sequences: Tensor) -> Tensor:
    """Mean cross-entropy, in nats per token, of predicting each token of (batch, time + 1) from those before it."""
    logits = model(sequences[:, :-1]).flatten(0, 1)
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    return F.cross_entropy(logits, sequences[:, 1:].flatten())


def build_model(config: TrainerConfig, device: torch.device, mesh: DeviceMesh) -> nn.Module:
    """Make the model from the seed, the same on every rank, and shard it over the mesh with FSDP2."""
    torch.manual_seed(config.seed)
    master = torch.float64 if config.dtype == "float64" else torch.float32
    model = Decoder(config).to(device=device, dtype=master)
    policy = MixedPrecisionPolicy()
    if config.dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model
