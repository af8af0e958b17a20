"""Position-aware digests of training state: name, dtype, global shape, offsets and bytes of every piece.

A permutation of equal-shaped pieces, a stale piece or one flipped bit changes a digest. The same function runs over
live tensors in a worker and over the pieces of a checkpoint on disk, so that the two can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import blake3
import torch

LENGTH = 16

LARGEST = 1_000_000
"""Values within one plain value that a digest is taken of."""


def tensor_digest(name: str, shape: Sequence[int], offsets: Sequence[int], piece: torch.Tensor) -> str:
    """Hex digest of one piece of a tensor: ``shape`` is the whole tensor's, ``offsets`` where the piece begins."""
    local = piece.detach().cpu().resolve_conj().resolve_neg().contiguous()
    numbers = [local.reshape(-1).view(torch.uint8).numpy().data] if local.numel() else []
    return numbers_digest(name, local.dtype, shape, offsets, local.shape, numbers)


def numbers_digest(
    name: str,
    dtype: torch.dtype,
    shape: Sequence[int],
    offsets: Sequence[int],
    sizes: Sequence[int],
    numbers: Iterable[memoryview],
) -> str:
    """The same of a piece of these sizes whose numbers come as bytes, part by part, in the order of its dimensions."""
    hasher = blake3.blake3(_bytes(f"{name}|{dtype}|{tuple(shape)}|{tuple(offsets)}|{tuple(sizes)}|"))
    for part in numbers:
        hasher.update(part)
    return hasher.hexdigest(length=LENGTH)


def value_digest(name: str, value: object) -> str:
    """Hex digest of a plain value: numbers, strings, None, and tuples, lists and dicts of them."""
    return blake3.blake3(_bytes(f"{name}|{_text(value, [LARGEST])}")).hexdigest(length=LENGTH)


def _text(value: object, left: list[int]) -> str:
    """A value as text, as ``repr`` gives it but for tensors, whose bytes count, and sets, which have no order.

    ``left``: how many values may still follow. Raises ValueError when there are more.
    """
    left[0] -= 1
    if left[0] < 0:
        raise ValueError(f"more than {LARGEST} values in one")
    match value:
        case torch.Tensor():
            return f"tensor({tensor_digest('', value.shape, (0,) * value.dim(), value)})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(_text(one, left) for one in value))}}}"
        case tuple() if type(value) is tuple:
            return f"({', '.join(_text(one, left) for one in value)}{',' if len(value) == 1 else ''})"
        case list():
            return f"{_kind(value, list)}[{', '.join(_text(one, left) for one in value)}]"
        case dict():
            items = (f"{_text(key, left)}: {_text(one, left)}" for key, one in value.items())
            return f"{_kind(value, dict)}{{{', '.join(items)}}}"
    return repr(value)


def _kind(value: object, plain: type) -> str:
    """The name of a type that is not the plain one, such as OrderedDict, whose ``repr`` would shorten tensors."""
    return "" if type(value) is plain else type(value).__name__


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def piece_key(name: str, offsets: Sequence[int]) -> str:
    """How a piece is named in records: ``model.head.weight@128,0``."""
    return f"{name}@{','.join(map(str, offsets))}"


def tree_digests(tree: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the pieces of a nested dict that this rank holds, by piece; nested keys are joined by dots."""
    found = {}
    for name, leaf in _leaves(tree, ""):
        if isinstance(leaf, torch.Tensor):
            shape, offsets, piece = _placed(leaf)
            if piece.numel() or piece is leaf:  # torch stores no empty shard, but an empty plain tensor
                found[piece_key(name, offsets)] = tensor_digest(name, shape, offsets, piece)
        else:
            found[name] = value_digest(name, leaf)
    return found


def _leaves(tree: Mapping[Any, Any] | list[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Names and values as torch's own flattening of a checkpoint gives them."""
    for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        name = f"{prefix}{key}"
        if _is_leaf(value):
            yield name, value
        else:
            yield from _leaves(value, f"{name}.")


def _is_leaf(value: Any) -> bool:
    """Mappings are opened, and lists that hold tensors or anything that is opened itself."""
    if isinstance(value, Mapping):
        return False
    return not isinstance(value, list) or all(_is_leaf(v) and not isinstance(v, torch.Tensor) for v in value)


def _placed(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.Tensor]:
    """Whole shape, offsets of this rank's piece, and the piece; a plain tensor is one whole piece."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not isinstance(tensor, DTensor):
        return tuple(tensor.shape), (0,) * tensor.dim(), tensor
    _, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(tensor.shape), tuple(offsets), tensor.to_local()
