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

def sizes():                                            # of the files of evicted slots, which have no names
    links = (f"/proc/self/fd/{{number}}" for number in os.listdir("/proc/self/fd"))
    return [os.stat(link).st_size for link in links if os.path.islink(link) and "/evicted/" in os.readlink(link)]

def fails(call, says, error=hone.Error):
    try:
        call()
    except error as raised:
        assert says in str(raised), raised
    else:
        raise AssertionError(says)
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
    assert not os.listdir("evicted") and len(sizes()) == len(slots)
    for at, slot in reversed(slots.items()):
        add(slot, at[1], 1)
        step(slot, at[1])
for (shape, user), slot in slots.items():
    slot.save_state(f"slot-{shape}-{user}")
    assert slot.info().step == ROUNDS and trainers[shape].slot(seed=1).info().slots == USERS + 2
for trainer in trainers.values():
    trainer.close()
assert not sizes()
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
                  "disk": sum(sizes())}))
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

    def test_data_that_use_another_slot_are_read_before_the_selection(self):
        """Seen to fail: the gradients went to the slot that the data had selected."""
        self.python("""
trainer = open_trainer("small")
alice, bob = trainer.slot(), trainer.slot()

class Number:
    def __index__(self):
        bob.select()
        return 7
    __float__ = lambda self: 0.5 * self.__index__()

def data():
    add(bob, 1, 0)
    yield hone.Datum([5, 6, 7, 8], weights=(bob.select() or 1 for _ in range(4)))

alice.forward_backward(data())
assert (alice.info().waiting, bob.info().waiting) == (1, 1), (alice.info(), bob.info())
alice.logprobs(row for row in [[5, 6, 7]] if bob.select() is None)
assert alice.info().selected
alice.optim_step(Number())
assert (alice.info().step, bob.info().step) == (1, 0)
""")

    def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have(self):
        """Seen to fail with a plain RLock: the child waited until the alarm."""
        self.python("""
import os, signal, threading

trainer, go_on = open_trainer("small"), True

def train():
    while go_on:
        add(trainer, 0, 0), trainer.clear_gradients()

thread = threading.Thread(target=train)
thread.start()
for turn in range(5):
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        trainer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
go_on = False
thread.join()
""")

    def test_threads_use_slots_of_one_trainer(self):
        """Seen to fail: a call of another thread came between a selection and its call, or the library refused it."""
        self.python("""
import threading

trainer = open_trainer("small")
with open_trainer("small", seed=7) as alone:
    for turn in range(6):
        add(alone, 0, 0), add(alone, 0, 1), step(alone, 0)
    expected = {name: alone.read_tensor(name) for name in alone.tensors()}
slots, wrong = [trainer.slot(seed=7) for _ in range(4)], []

def train(slot):
    try:
        for turn in range(6):
            add(slot, 0, 0)
            trainer.slot().tokenize("closed in the next call " * 2000)
            add(slot, 0, 1), step(slot, 0)
            slot.chat_template([{"role": "user", "content": "Hi " * 5000}], prompt=True)
    except BaseException as error:
        wrong.append(error)

threads = [threading.Thread(target=train, args=(slot,)) for slot in slots]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
for slot in slots:
    assert {name: slot.read_tensor(name) for name in slot.tensors()} == expected
assert slots[0].info().slots == 5, slots[0].info()
""")

    def test_a_callback_that_uses_another_slot_raises(self):
        self.python("""
trainer = hone.Trainer(%r, micro_batch_tokens=64, dtype="float32", lora_r=4)
alice, bob = trainer.slot(), trainer.slot()
kept = []

def other(datum, first, logits, gradient):
    fails(lambda: add(bob, 0, 0), "inside a callback")
    fails(bob.close, "inside a callback")
    fails(trainer.slot, "inside a callback")
    kept.append((memoryview(logits[0])[1:], list(logits[0])[1:], gradient))
    gradient[0][3] = 0.25
    return 1.5

assert alice.forward_backward([[5, 6, 7]], other).sum == 1.5
assert (alice.info().waiting, bob.info().waiting) == (1, 0)
assert any(any(alice.read_tensor(name, gradient=True)) for name in alice.tensors())
alice.sample("Hi", max_new_tokens=2, stream=lambda text: fails(bob.select, "inside a callback"))
alice.forward_backward([[90, 100, 110]], lambda *unused: 0)
bob.close()
trainer.close()
for view, seen, gradient in kept:                       # the loss's own
    assert list(view) == seen and gradient[0][3] == 0.25
    view[0] = 1
""" % str(TINY))

    def test_a_slot_that_cannot_be_closed_stays(self):
        """Seen to fail: its number was forgotten before the call, and nobody could close it or use it."""
        self.python("""
import gc

trainer = hone.Trainer(%r, micro_batch_tokens=64, dtype="float32", lora_r=4)
slot = trainer.slot(seed=5)

def close(datum, first, logits, gradient):
    fails(slot.close, "inside a callback")
    global dropped
    dropped = None
    gc.collect()                                        # which closes it later
    return 0

dropped = trainer.slot()
slot.forward_backward([[5, 6, 7]], close)
assert slot.info().seed == 5 and slot.info().waiting == 1 and slot.info().slots == 2
slot.close()
fails(slot.info, "this slot is closed")
""" % str(TINY))

    def test_states_are_loaded_whatever_the_rate_is(self):
        """What is given with each step is no reason to refuse a state; what its arrays mean is."""
        self.python("""
with open_trainer("small", learning_rate=1e-3, lr_scheduler_type="linear", weight_decay=0.1) as trainer:
    slot = trainer.slot(seed=9)
    add(slot, 0, 0), step(slot, 0)
    slot.save_state("state")
    now = slot.read_tensor(next(iter(slot.tensors())))
with open_trainer("small", learning_rate=0.5, max_grad_norm=0, max_steps=3, losses=("ppo", "cross_entropy")) as trainer:
    for loaded in (trainer.load_slot("state"), trainer):
        loaded.load_state("state")
        assert loaded.read_tensor(next(iter(loaded.tensors()))) == now
        add(loaded, 0, 0), step(loaded, 0)
    assert trainer.load_slot("state").info().seed == 9
for options, says in (({"lora_alpha": 3}, "its ranks, scales or modules"), ({"lora_dropout": 0.2}, "lora_dropout"),
                      ({"optim": "lion"}, "optim"), ({"lora_target_modules": ["q_proj"]}, "its ranks, scales or modules")):
    with open_trainer("small", **options) as trainer:
        fails(lambda: trainer.load_slot("state"), says)
        fails(lambda: trainer.load_state("state"), says)
""")


main(Slots, Slots)
