#!/usr/bin/env python3
"""The program on a device other than the CPU.

    devices.py HONE ASSETS DATA [--large]

What a run computes is what the CPU computes; nothing is compiled twice; a device that is not there is named with what to install.
"""
import json
import os
import re
import signal
import subprocess

from case import HONE, SMOL, TINY, Case, main
from stop import stop_when
from train import chat, losses, metrics

DEVICE = "opencl"


class DeviceCase(Case):
    def setUp(self):
        super().setUp()
        self.data = self.write("chats.jsonl", *map(chat, range(16)))

    def train(self, out, *args, model=TINY, steps=20):
        return json.loads(self.ok("train", "--model", model, "--data", self.data, "--output", self.dir / out, "--json", "--max-steps",
                                  steps, "--per-device-train-batch-size", 4, "--learning-rate", 0.01, "--dtype", "float32", *args))

    def same_losses(self, relative, *args, **options):
        for device in ("cpu", DEVICE):
            result = self.train(device, "--device", device, *args, **options)
            self.assertEqual((result["device"], result["skipped_steps"]), (device, 0))
            self.assertEqual(result["planned_bytes"], result["allocated_bytes"])
        cpu, other = losses(self.dir / "cpu"), losses(self.dir / DEVICE)
        self.assertEqual(len(cpu), len(other))
        worst = max(abs(a - b) / abs(a) for a, b in zip(cpu, other))
        print(f"worst relative difference of {len(cpu)} losses: {worst:.1e}")
        self.assertLess(worst, relative)
        return cpu

    def same_text(self, model, tokens):
        text = {device: self.ok("generate", "--model", model, "--prompt", "Hello, who are you?", "--max-new-tokens", tokens, "--dtype",
                                "float32", "--device", device) for device in ("cpu", DEVICE)}
        self.assertEqual(text[DEVICE], text["cpu"])
        self.assertTrue(text["cpu"].strip())


class Tiny(DeviceCase):
    def test_lora_training_gives_the_losses_of_the_cpu(self):
        cpu = self.same_losses(1e-5, "--lora-dropout", 0.1)
        self.assertLess(cpu[-1], cpu[0])

    def test_full_training_gives_the_losses_of_the_cpu(self):
        cpu = self.same_losses(1e-5, "--finetuning-type", "full", "--learning-rate", 1e-3)
        self.assertLess(cpu[-1], cpu[0])

    def test_a_recomputed_layer_and_accumulated_steps_give_the_losses_of_the_cpu(self):
        self.same_losses(1e-5, "--recompute", "full", "--gradient-accumulation-steps", 2, steps=4)

    def test_sixteen_bit_types_train(self):
        self.train("float32", "--device", "cpu", steps=4)
        for dtype, tolerance in ("bfloat16", 0.02), ("float16", 0.003):
            result = self.train(dtype, "--device", DEVICE, "--dtype", dtype, steps=4)
            self.assertEqual((result["dtype"], result["skipped_steps"]), (dtype, 0))
            for a, b in zip(losses(self.dir / "float32"), losses(self.dir / dtype)):
                self.assertAlmostEqual(a, b, delta=tolerance * a)

    def test_eval_gives_the_loss_of_the_cpu(self):
        loss = {device: json.loads(self.ok("eval", "--model", TINY, "--data", self.data, "--json", "--dtype", "float32", "--device", device))
                for device in ("cpu", DEVICE)}
        self.assertAlmostEqual(loss[DEVICE]["loss"], loss["cpu"]["loss"], delta=1e-5 * loss["cpu"]["loss"])

    def test_generate_gives_the_text_of_the_cpu(self):
        self.same_text(TINY, 24)

    def test_two_runs_give_the_same_bytes(self):
        for out, every in ("a", 0), ("b", 2):  # one of them with a step that is computed twice
            self.train(out, "--device", DEVICE, "--gradient-accumulation-steps", 2, "--verify-every", every, steps=3)
        a, b = ((self.dir / out / "adapter_model.safetensors").read_bytes() for out in ("a", "b"))
        self.assertEqual(a, b)

    def test_a_run_that_is_stopped_goes_on_to_the_same_bytes(self):
        """A step is running when the signal comes: it is finished, reported and saved."""
        command = lambda out: [HONE, *map(str, ("train", "--model", TINY, "--data", self.data, "--output", self.dir / out, "--json", "--max-steps",
                               12, "--per-device-train-batch-size", 2, "--lora-dropout", 0.1, "--dtype", "float32", "--device", DEVICE))]
        subprocess.run(command("whole"), check=True, capture_output=True)
        process = subprocess.Popen(command("cut"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path = self.dir / "cut/metrics.jsonl"
        stop_when(process, lambda: path.exists() and '"step": 3' in path.read_text())
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 10, err)
        step = int(re.search(r"(?m)^stopping after step (\d+) and saving the state$", err)[1])
        self.assertRegex(err, rf"(?m)^hone: stopped after step {step}; the state is in \S+/checkpoint-{step}\.")
        self.assertEqual(len(losses(self.dir / "cut")), step)
        resumed = json.loads(subprocess.run(command("cut"), check=True, capture_output=True, text=True).stdout)
        self.assertEqual(resumed["resumed_step"], step)
        self.assertEqual(losses(self.dir / "cut"), losses(self.dir / "whole"))
        whole, cut = ((self.dir / out / "adapter_model.safetensors").read_bytes() for out in ("whole", "cut"))
        self.assertEqual(cut, whole)

    def test_devices_lists_it(self):
        listed = {d["device"]: d for d in json.loads(self.ok("devices", "--json"))["devices"]}
        self.assertTrue(listed[DEVICE]["usable"])
        self.assertGreater(listed[DEVICE]["memory_bytes"], 0)

    def test_a_library_that_is_missing_is_named_with_the_way_to_get_it(self):
        os.environ["HONE_OPENCL_LIBRARY"] = "/nowhere/libOpenCL.so.1"
        try:
            self.fails(6, "eval", "--model", TINY, "--data", self.data, "--device", DEVICE, says=("/nowhere/libOpenCL.so.1", "ocl-icd-libopencl1"))
        finally:
            del os.environ["HONE_OPENCL_LIBRARY"]

    def test_a_machine_without_a_driver_is_told_which_to_install(self):
        os.environ["OCL_ICD_VENDORS"] = str(self.dir)
        try:
            self.fails(6, "eval", "--model", TINY, "--data", self.data, "--device", DEVICE, says=("no device", "pocl-opencl-icd"))
        finally:
            del os.environ["OCL_ICD_VENDORS"]


class Large(DeviceCase):
    def test_three_steps_of_smollm2_give_the_losses_of_the_cpu(self):
        self.data = self.write("short.jsonl", *(chat(i, words=3 + i % 6) for i in range(8)))
        self.same_losses(1e-4, "--per-device-train-batch-size", 2, "--learning-rate", 1e-3, model=SMOL, steps=3)
        for device in ("cpu", DEVICE):
            steps = metrics(self.dir / device)[1]
            self.assertEqual(len(steps), 3)
            self.assertTrue(all(0 < step["tokens"] <= 128 for step in steps), [step["tokens"] for step in steps])

    def test_generate_of_smollm2_gives_the_text_of_the_cpu(self):
        self.same_text(SMOL, 8)


if __name__ == "__main__":
    main(Tiny, Large)
