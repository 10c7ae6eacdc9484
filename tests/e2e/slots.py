#!/usr/bin/env python3
"""Slots through Python: what a trainer gives each of many users is what a process of its own gives.

    slots.py HONE ASSETS DATA LIBRARY
"""
import json
import os
import pathlib
import re
import subprocess
import sys

from case import TINY, Case, main

ROOT = pathlib.Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "HONE_LIBRARY": sys.argv[4], "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
SAME = ("adapter_model.safetensors", "adapter_config.json", "state.safetensors")
# What the scripts below share: a user's rows, and a user's round, in two halves.
SHAPES = {"small": {"lora_r": 4}, "large": {"lora_r": 8, "lora_target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.1}}
SHARED = f"""
import hone, json, os, sys, time

SHAPES, USERS, ROUNDS = {SHAPES!r}, 5, 3

def open_trainer(shape, **options):
    return hone.Trainer({str(TINY)!r}, own_loss=False, sampling=False, micro_batch_tokens=64, dtype="float32", **SHAPES[shape], **options)

def rows(user, half):
    return [[3 + (user * 31 + half * 7 + i * i) % 250 for i in range(12 + user)] for _ in range(1 + half)]

def add(trains, user, half):
    trains.forward_backward(rows(user, half))

def step(trains, user):
    assert trains.optim_step(None if user % 2 else 0.002 * (user + 1)).applied
"""


class Slots(Case):
    def python(self, text, *args):
        done = subprocess.run([sys.executable, "-c", SHARED + text, *map(str, args)], cwd=self.dir, env=ENVIRONMENT, capture_output=True,
                              text=True, timeout=1200, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_two_shapes_of_five_users_give_what_processes_of_their_own_give(self):
        """Fails if something of a slot gets into another one or into another trainer, or is lost on the disk."""
        self.python("""
trainers = {shape: open_trainer(shape) for shape in SHAPES}
slots = {(shape, user): trainer.slot(seed=100 + user) for shape, trainer in trainers.items() for user in range(USERS)}
for turn in range(ROUNDS):
    for at, slot in slots.items():
        add(slot, at[1], 0)
        slot.evict("evicted")
    assert len(os.listdir("evicted")) == len(slots)
    for at, slot in reversed(slots.items()):
        add(slot, at[1], 1)
        step(slot, at[1])
for (shape, user), slot in slots.items():
    slot.save_state(f"slot-{shape}-{user}")
    assert slot.info().step == ROUNDS and trainers[shape].slot(seed=1).info().slots == USERS + 2
for trainer in trainers.values():
    trainer.close()
assert not os.listdir("evicted")
""")
        for shape in SHAPES:
            for user in range(5):
                self.python("""
shape, user = sys.argv[1], int(sys.argv[2])
with open_trainer(shape, seed=100 + user) as trainer:
    for turn in range(ROUNDS):
        add(trainer, user, 0)
        add(trainer, user, 1)
        step(trainer, user)
    trainer.save_state(f"alone-{shape}-{user}")
""", shape, user)
                ours, alone = self.dir / f"slot-{shape}-{user}", self.dir / f"alone-{shape}-{user}"
                for name in SAME:
                    self.assertEqual((ours / name).read_bytes(), (alone / name).read_bytes(), (shape, user, name))
                states = [json.loads((folder / "trainer_state.json").read_text()) for folder in (ours, alone)]
                for state in states:
                    self.assertTrue(state.pop("run") and state.pop("began"))
                self.assertEqual(*states)

    def test_a_trainer_of_200_slots_costs_what_is_planned_and_no_slot_more_than_another(self):
        """Fails if a selection looks at all slots, or one that is evicted keeps memory."""
        plan = json.loads(self.ok("plan", "--model", TINY, "--dtype", "float32", "--micro-batch-tokens", 64, "--lora-r", 32, "--json", "--data",
                                  self.write("chats.jsonl", {"messages": [{"role": "user", "content": "Hi"},
                                                                          {"role": "assistant", "content": "Yes."}]})))
        self.assertIn("a further slot of a trainer", self.ok("plan", "--model", TINY, "--micro-batch-tokens", 64, "--lora-r", 32, "--data",
                                                             self.dir / "chats.jsonl"))
        said = self.python("""
import resource

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

SHAPES["wide"] = {"lora_r": 32}
trainer = open_trainer("wide")
slots = [trainer.slot(seed=n) for n in range(2)]
add(slots[0], 0, 0), step(slots[0], 0)
before = resident()
slots += [trainer.slot(seed=n) for n in range(2, 200)]
held = resident() - before
seconds = []
for slot in slots:
    began = time.monotonic()
    slot.select()
    seconds.append(time.monotonic() - began)
info = slots[0].info()
for slot in slots:
    slot.evict("evicted")
left = resident() - before
add(slots[150], 1, 0), step(slots[150], 1)
print(json.dumps({"slots": info.slots, "slot_bytes": info.slot_bytes, "gradient_bytes": info.gradient_bytes, "held": held, "left": left,
                  "first": sorted(seconds[:100])[50], "last": sorted(seconds[100:])[50],
                  "disk": sum(os.path.getsize(f"evicted/{name}") for name in os.listdir("evicted"))}))
""")
        seen = json.loads(said)
        print(said)
        self.assertEqual((seen["slot_bytes"], seen["gradient_bytes"]), (plan["slot_bytes"], plan["slot_gradient_bytes"]))
        self.assertEqual(seen["slots"], 201)
        self.assertEqual(seen["disk"], 199 * seen["slot_bytes"])
        planned = 198 * seen["slot_bytes"]
        self.assertLess(abs(seen["held"] - planned), 0.1 * planned + (8 << 20))
        self.assertLess(seen["left"], 0.1 * planned + (8 << 20))
        self.assertLess(seen["last"], 4 * seen["first"] + 0.002)

    def test_python_says_what_is_wrong_with_a_slot(self):
        self.python("""
def fails(call, says):
    try:
        call()
    except hone.Error as raised:
        assert says in str(raised), raised
    else:
        raise AssertionError(says)

trainer = open_trainer("small")
slot = trainer.slot()
add(slot, 0, 0)
add(trainer, 1, 0)                                      # its own adapter, and not the slot's
assert (slot.info().waiting, slot.info().selected, slot.info().seed) == (1, False, 42)
fails(lambda: trainer.slot(seed=-2), "seed is -2")
fails(lambda: trainer.slot(adapter="nowhere"), "nowhere")
fails(lambda: trainer.load_slot("nowhere"), "nowhere")
fails(lambda: slot.save_state("half"), "gradients were added")
step(slot, 0)
slot.save("adapter")
with trainer.slot(adapter="adapter") as other:
    assert other.logprobs([[5, 6, 7]]) == slot.logprobs([[5, 6, 7]]) != trainer.logprobs([[5, 6, 7]])
fails(lambda: other.save("x"), "this slot is closed")
slot.close()
slot.close()
step(trainer, 1)
last = trainer.slot(seed=3)
trainer.close()
last.close()
fails(lambda: trainer.slot(), "this trainer is closed")
""")


main(Slots, Slots)
