"""Stands for the ``aftershock`` command: answers as its file of answers says, and notes how it was called."""

import json
import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(sys.argv[1])
words = sys.argv[2:]
with (HERE / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\n")
answers = json.loads((HERE / "answers.json").read_text())
answer = answers.get(words[0], {})
if words[0] == "run" and "--dry-run" in words:
    answer = answers.get("plan", {})
for directory in answer.get("directories", []):
    with open(os.environ["AFTERSHOCK_TELL"], "a") as told:
        told.write(directory + "\n")
if "wait" in answer:

    def heal(*signal_and_frame):
        time.sleep(1.5)
        (HERE / "healed").touch()
        sys.exit(6)

    signal.signal(signal.SIGINT, heal)
    (HERE / "waiting").touch()
    print("  launch   the training script", file=sys.stderr, flush=True)
    time.sleep(answer["wait"])
print(answer.get("progress", ""), file=sys.stderr)
output = answer.get("output", "")
print(output if isinstance(output, str) else json.dumps(output))
sys.exit(answer.get("code", 0))
