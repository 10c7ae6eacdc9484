#!/usr/bin/env python3
"""Configurations that people already have: those of tests/data/configs, written with the documented keys of the four tools after
their published examples, convert and train with the options that they should have; wrong keys are refused by name.

    configs.py HONE ASSETS DATA
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

from case import HONE, TINY, Case, main, run

CONFIGS = pathlib.Path(__file__).parents[1] / "data/configs"

# What each file must become: options that differ from hone's defaults, and some that must not.
HF = {"excess_length": "truncate", "lr_scheduler_type": "linear", "per_device_train_batch_size": "8", "num_train_epochs": "3"}
EXPECTED = {
    "axolotl/lora.yml": {
        "model_name_or_path": "model", "dataset_path": "data/alpaca.jsonl", "val_set_size": "0.25", "output_dir": "./outputs/lora-out",
        "max_length": "256", "excess_length": "drop", "packing": "true", "finetuning_type": "lora", "lora_r": "4", "lora_alpha": "8",
        "lora_dropout": "0.05", "lora_target_modules": "gate_proj,down_proj,up_proj,q_proj", "optim": "adamw", "learning_rate": "0.0002",
        "lr_scheduler_type": "cosine", "warmup_ratio": "0.1", "weight_decay": "0", "per_device_train_batch_size": "1",
        "gradient_accumulation_steps": "2", "num_train_epochs": "1", "max_steps": "2", "evals_per_epoch": "4",
        "saves_per_epoch": "1", "dtype": "auto", "tf32": "false"},
    "axolotl/qlora.yml": {
        "model_name_or_path": "model", "dataset_path": "data/chats.jsonl,data/texts.jsonl", "val_set_size": "0",
        "output_dir": "outputs/qlora-out", "max_length": "128", "excess_length": "truncate", "train_on_inputs": "false",
        "finetuning_type": "qlora", "load_in_4bit": "true", "lora_r": "8", "lora_alpha": "16", "lora_target_modules": "all-linear",
        "use_rslora": "true", "optim": "adamw", "learning_rate": "2e-05", "lr_scheduler_type": "linear", "warmup_steps": "1",
        "adam_beta2": "0.95", "adam_epsilon": "1e-05", "max_grad_norm": "0.5", "per_device_train_batch_size": "2",
        "gradient_accumulation_steps": "2", "num_train_epochs": "4", "max_steps": "2", "dtype": "bfloat16", "tf32": "true",
        "save_steps": "2", "save_total_limit": "1", "seed": "7"},
    "axolotl/full.yml": {
        "model_name_or_path": "model", "dataset_path": "data/sharegpt.jsonl", "val_set_size": "2", "output_dir": "outputs/full",
        "max_length": "256", "excess_length": "drop", "finetuning_type": "full", "load_in_4bit": "false", "optim": "adamw",
        "learning_rate": "0.0001", "lr_scheduler_type": "constant", "warmup_ratio": "0", "per_device_train_batch_size": "4",
        "num_train_epochs": "2", "eval_steps": "1", "report_to": "tensorboard", "dtype": "float32"},
    "llamafactory/lora_sft.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/identity.json,data/alpaca.jsonl", "val_set_size": "0.2", "max_samples": "5",
        "output_dir": "saves/lora/sft", "max_length": "200", "excess_length": "truncate", "finetuning_type": "lora", "lora_r": "8",
        "lora_alpha": "16", "lora_target_modules": "all-linear", "learning_rate": "0.0001", "lr_scheduler_type": "cosine",
        "warmup_ratio": "0.1", "per_device_train_batch_size": "1", "gradient_accumulation_steps": "2", "num_train_epochs": "1",
        "eval_steps": "500", "save_steps": "500", "dtype": "bfloat16", "ddp_timeout": "180000000"},
    "llamafactory/qlora_sft.yaml": {
        **HF, "model_name_or_path": "model", "dataset_path": "data/sharegpt.jsonl", "eval_dataset_path": "data/alpaca.jsonl",
        "output_dir": "saves/qlora", "max_length": "256", "packing": "true", "shuffle": "false", "train_on_inputs": "true",
        "finetuning_type": "lora", "load_in_4bit": "true", "bnb_4bit_use_double_quant": "false", "lora_r": "8", "lora_alpha": "16",
        "lora_target_modules": "q_proj,v_proj", "optim": "adamw", "learning_rate": "5e-05", "warmup_ratio": "0", "max_steps": "2",
        "dtype": "float32"},
    "llamafactory/full_sft.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/alpaca.jsonl", "output_dir": "saves/full/sft", "max_length": "256",
        "excess_length": "truncate", "finetuning_type": "full", "learning_rate": "1e-05", "lr_scheduler_type": "constant",
        "warmup_steps": "2", "weight_decay": "0.1", "adam_beta1": "0.8", "per_device_train_batch_size": "2", "num_train_epochs": "1",
        "save_steps": "500", "dtype": "float32", "seed": "3"},
    "llamafactory/pretrain.yaml": {
        **HF, "model_name_or_path": "model", "dataset_path": "data/texts.jsonl", "output_dir": "saves/pretrain", "max_length": "128",
        "packing": "true", "finetuning_type": "lora", "lora_r": "4", "lora_alpha": "16", "lora_dropout": "0.1",
        "lora_target_modules": "all-linear", "use_rslora": "true", "learning_rate": "5e-05", "warmup_ratio": "0",
        "per_device_train_batch_size": "1", "max_steps": "2", "dtype": "bfloat16"},
    "trl/sft.yaml": {
        **HF, "model_name_or_path": "model", "dataset_path": "data/chats.jsonl", "output_dir": "trainer_output", "max_length": "128",
        "train_on_inputs": "true", "finetuning_type": "full", "learning_rate": "0.0001", "lr_scheduler_type": "cosine",
        "warmup_ratio": "0", "max_steps": "2", "dtype": "bfloat16"},
    "trl/sft_lora.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/split", "eval_dataset_path": "data/split/test.jsonl",
        "output_dir": "outputs/trl-lora", "max_length": "200", "excess_length": "split", "packing": "true", "train_on_inputs": "false",
        "finetuning_type": "lora", "lora_r": "8", "lora_alpha": "8", "lora_dropout": "0.05",
        "lora_target_modules": "q_proj,k_proj,v_proj,o_proj", "learning_rate": "0.0002", "lr_scheduler_type": "constant",
        "warmup_ratio": "0.1", "per_device_train_batch_size": "2", "gradient_accumulation_steps": "2", "num_train_epochs": "1",
        "eval_steps": "2", "saves_per_epoch": "1", "dtype": "bfloat16", "tf32": "true", "seed": "11"},
    "trl/sft_qlora.yaml": {
        **HF, "model_name_or_path": "model", "dataset_path": "data/prompts.jsonl", "val_set_size": "2", "output_dir": "trainer_output",
        "max_length": "0", "train_on_inputs": "false", "raw": "true", "finetuning_type": "lora", "load_in_4bit": "true",
        "bnb_4bit_use_double_quant": "false", "lora_dropout": "0", "lora_target_modules": "q_proj,v_proj", "use_rslora": "true",
        "optim": "adamw", "learning_rate": "2e-05", "warmup_ratio": "0", "max_grad_norm": "0.3", "max_steps": "2", "dtype": "float32",
        "device": "cpu"},
    "mlx/lora_config.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/split", "output_dir": "adapters", "max_length": "256",
        "excess_length": "truncate", "train_on_inputs": "true", "finetuning_type": "lora", "lora_r": "8", "lora_alpha": "160",
        "lora_dropout": "0", "lora_target_modules": "self_attn.q_proj,self_attn.v_proj", "optim": "adamw", "learning_rate": "1e-05",
        "lr_scheduler_type": "constant", "warmup_ratio": "0", "weight_decay": "0.01", "max_grad_norm": "0",
        "per_device_train_batch_size": "4", "gradient_accumulation_steps": "1", "max_steps": "3", "eval_steps": "200",
        "save_steps": "100", "seed": "0"},
    "mlx/lora_cosine.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/split", "output_dir": "adapters", "max_length": "200",
        "excess_length": "truncate", "train_on_inputs": "false", "lora_r": "16", "lora_alpha": "40", "lora_dropout": "0.1",
        "lora_target_modules": ",".join(f"layers.1.{name}" for name in (
            *(f"self_attn.{x}_proj" for x in "qkvo"), *(f"mlp.{x}_proj" for x in ("gate", "up", "down")))),
        "optim": "adamw", "learning_rate": "0.001", "lr_scheduler_type": "cosine", "warmup_steps": "1", "adam_beta1": "0.9",
        "adam_beta2": "0.98", "adam_epsilon": "1e-06", "max_grad_norm": "0", "per_device_train_batch_size": "2",
        "gradient_accumulation_steps": "4", "max_steps": "2", "eval_steps": "50", "save_steps": "25", "seed": "0"},
    "mlx/full.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/split", "output_dir": "full-out", "max_length": "256",
        "excess_length": "truncate", "train_on_inputs": "true", "finetuning_type": "full", "learning_rate": "1e-05",
        "lr_scheduler_type": "constant", "warmup_ratio": "0", "max_grad_norm": "0", "per_device_train_batch_size": "4",
        "max_steps": "2", "eval_steps": "1", "save_steps": "100", "seed": "5"},
    "axolotl/hub.yml": {
        "model_name_or_path": "model", "dataset_path": "data/chats.jsonl", "val_set_size": "0.25",
        "output_dir": "./outputs/hub-out", "max_length": "256", "excess_length": "drop", "finetuning_type": "lora", "lora_r": "8",
        "lora_alpha": "16", "lora_dropout": "0", "lora_target_modules": "all-linear", "optim": "adamw", "learning_rate": "0.0001",
        "lr_scheduler_type": "cosine", "warmup_steps": "1", "per_device_train_batch_size": "2",
        "gradient_accumulation_steps": "1", "num_train_epochs": "1", "max_steps": "2", "eval_steps": "2", "save_total_limit": "2",
        "dtype": "bfloat16", "seed": "42"},
    "axolotl/completion.yml": {
        "model_name_or_path": "model", "dataset_path": "data/texts.jsonl", "output_dir": "./outputs/completion",
        "max_length": "128", "excess_length": "drop", "packing": "true", "finetuning_type": "full", "optim": "adamw",
        "learning_rate": "2e-05", "lr_scheduler_type": "cosine_with_min_lr", "warmup_ratio": "0.1",
        "per_device_train_batch_size": "2", "gradient_accumulation_steps": "2", "num_train_epochs": "1", "max_steps": "3",
        "min_lr_rate": "0.1", "dtype": "auto"},
    "llamafactory/hub_sft.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/alpaca.jsonl", "val_set_size": "0.25", "output_dir": "saves/hub/sft",
        "max_length": "256", "excess_length": "truncate", "finetuning_type": "lora", "lora_r": "8", "lora_alpha": "32",
        "lora_target_modules": "all-linear", "learning_rate": "0.0001", "lr_scheduler_type": "cosine", "warmup_ratio": "0.1",
        "per_device_train_batch_size": "2", "gradient_accumulation_steps": "1", "num_train_epochs": "3", "max_steps": "2",
        "eval_steps": "1", "save_steps": "500", "dtype": "bfloat16"},
    "trl/sft_hub.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/split", "eval_dataset_path": "data/split/test.jsonl",
        "output_dir": "data/sft-qlora", "max_length": "256", "excess_length": "truncate", "train_on_inputs": "true",
        "finetuning_type": "lora", "lora_r": "16", "lora_alpha": "16", "lora_dropout": "0.05",
        "lora_target_modules": "all-linear", "learning_rate": "0.0002", "lr_scheduler_type": "cosine", "warmup_ratio": "0.1",
        "per_device_train_batch_size": "4", "gradient_accumulation_steps": "2", "num_train_epochs": "3", "max_steps": "2",
        "eval_steps": "2", "save_steps": "100", "save_total_limit": "1", "report_to": "tensorboard", "dtype": "bfloat16",
        "seed": "42"},
    "trl/sft_text.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/texts.jsonl", "output_dir": "outputs/text", "max_length": "128",
        "excess_length": "truncate", "packing": "true", "train_on_inputs": "true", "finetuning_type": "lora", "lora_r": "4",
        "lora_alpha": "8", "lora_dropout": "0.05", "lora_target_modules": "all-linear", "learning_rate": "0.0001",
        "lr_scheduler_type": "linear", "warmup_ratio": "0", "per_device_train_batch_size": "8", "num_train_epochs": "3",
        "max_steps": "2", "dtype": "bfloat16"},
    "mlx/wandb.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/split", "output_dir": "adapters/wandb", "max_length": "256",
        "excess_length": "truncate", "train_on_inputs": "false", "finetuning_type": "lora", "lora_r": "8", "lora_alpha": "80",
        "lora_dropout": "0", "lora_target_modules": "all-linear", "learning_rate": "2e-05", "lr_scheduler_type": "constant",
        "warmup_ratio": "0", "max_grad_norm": "0", "per_device_train_batch_size": "2", "max_steps": "2", "eval_steps": "100",
        "save_steps": "50", "seed": "0"},
    "mlx/completions.yaml": {
        "model_name_or_path": "model", "dataset_path": "data/pairs", "column_mapping": "prompt=question,completion=answer",
        "output_dir": "adapters/pairs", "max_length": "128", "excess_length": "truncate", "train_on_inputs": "true",
        "finetuning_type": "full", "optim": "adamw", "learning_rate": "1e-05", "lr_scheduler_type": "constant",
        "warmup_ratio": "0", "max_grad_norm": "0", "per_device_train_batch_size": "2", "max_steps": "2", "eval_steps": "1",
        "save_steps": "10", "seed": "7"},
}
# What a run says of what it does otherwise, of what it does not do, and of what it does not need.
SAYS = {
    "axolotl/lora.yml": ["changed: optimizer: adamw_8bit: exact", "changed: datasets[].type: alpaca: rows go through the model's chat",
                         "wandb_watch", "loss_watchdog_patience", "special_tokens.pad_token", "an Axolotl config"],
    "axolotl/qlora.yml": ["deepspeed", "liger_rope", "model_type", "gradient_checkpointing"],
    "llamafactory/lora_sft.yaml": ["changed: template: llama3: the chat template of the model", "plot_loss", "a LLaMA-Factory config"],
    "llamafactory/qlora_sft.yaml": ["changed: optim: paged_adamw_8bit: exact", "flash_attn"],
    "trl/sft_lora.yaml": ["attn_implementation", "hub_model_id", "a TRL config"],
    "mlx/lora_config.yaml": ["changed: optimizer: adamw: with the bias correction", "val_batches", "an MLX-LM config"],
    "mlx/lora_cosine.yaml": ["the rate ends at 0", "the warm-up begins at 0"],
    "axolotl/hub.yml": ["not done: hub_model_id, hub_strategy: hone uploads nothing: huggingface-cli upload does",
                        "not done: use_wandb, wandb_project, wandb_name, wandb_log_model: every step is in metrics.jsonl",
                        "not done: eval_table_size: ", "not done: deepspeed: ranks (--nproc) divide memory with --shard"],
    "axolotl/completion.yml": ["not done: use_mlflow, mlflow_tracking_uri, mlflow_experiment_name: ", "not done: fsdp_version, fsdp_config: ",
                               "not done: context_parallel_size: ", "changed: save_only_model: true: "],
    "llamafactory/hub_sft.yaml": ["not done: push_to_hub, hub_model_id, hub_private_repo: hone uploads nothing", "not done: plot_loss: hone report",
                                  "not done: report_to: wandb: every step is in metrics.jsonl", "not done: run_name: ",
                                  "changed: overwrite_output_dir: true: hone resumes"],
    "trl/sft_hub.yaml": ["not done: hub_model_id, hub_strategy, push_to_hub: hone uploads nothing", "not done: report_to: wandb: "],
    "trl/sft_text.yaml": ["not done: report_to: mlflow: ", "not done: fsdp, fsdp_config: ", "not done: push_to_hub: "],
    "mlx/wandb.yaml": ["not done: report_to: ", "not done: project_name: ", "not done: test: hone eval", "changed: val_batches: 25: "],
    "mlx/completions.yaml": ["not done: report_to: "],
}

# A configuration of each tool that is fine.
GOOD = {
    "axolotl": ["base_model: model", "datasets: [{path: data/chats.jsonl, type: chat_template}]", "sequence_len: 128",
                "micro_batch_size: 1", "learning_rate: 1e-4"],
    "llamafactory": ["model_name_or_path: model", "stage: sft", "dataset: alpaca_demo", "cutoff_len: 128", "output_dir: out"],
    "trl": ["model_name_or_path: model", "dataset_name: data/chats.jsonl", "use_peft: true", "max_length: 128"],
    "mlx": ["model: model", "data: data/split", "train: true", "iters: 1", "max_seq_length: 128"],
}
# Wrong lines, and what the message must say of each.
WRONG = {
    "axolotl": [
        ("rl: dpo", "rl: dpo (line 6): hone has supervised fine-tuning"), ("sequence_length: 5", "did you mean sequence_len?"),
        ("cutoff_len: 128", "did you mean sequence_len?"), ("per_device_train_batch_size: 8", "micro_batch_size in line 4 says it already"),
        ("optimizer: adafactor", "optimizer: adafactor (line 6): hone has adamw and lion"), ("lr_sheduler: cosine", "did you mean lr_scheduler?"),
        ("lr_scheduler: inverse_sqrt", "hone has constant, constant_with_warmup, linear"), ("adapter: ia3", "adapter: ia3 (line 6): hone has lora and qlora"),
        ("adapter: lora", "lora_r and lora_alpha are needed"), ("neftune_noise_alpha: 5", "neftune_noise_alpha: 5 (line 6)"),
        ("lora_modules_to_save: [embed_tokens]", "lora_modules_to_save (line 6): hone trains adapters"),
        ("plugins: [axolotl.integrations.spectrum.SpectrumPlugin]", "plugins (line 6): hone has no plugins"),
        ("tokens: ['<x>']", "tokens (line 6): hone adds no tokens"), ("cosine_constant_lr_ratio: 0.1", "the cosine goes on"),
        ("special_token: x", "did you mean special_tokens?")],
    "llamafactory": [
        ("pref_beta: 0.1", "pref_beta: 0.1 (line 6): not done, it is of DPO"), ("finetuning_type: freeze", "finetuning_type: freeze (line 6): hone has lora and full"),
        ("quantization_bit: 3", "quantization_bit: 3 (line 6): hone has 4"), ("quantization_method: hqq", "hone quantises to NF4"),
        ("micro_batch_size: 4", "did you mean per_device_train_batch_size?"), ("lora_rnak: 4", "did you mean lora_rank?"),
        ("pissa_init: true", "A random, B zero"), ("use_galore: true", "use_galore: true (line 6)"),
        ("loraplus_lr_ratio: 16.0", "hone has one learning rate"), ("eval_dataset: nowhere", "nowhere in dataset_info.json: there is no such data set"),
        ("eval_dataset: hub_demo", "it has no file_name"), ("eval_dataset: renamed_demo", "prompt is question")],
    "trl": [
        ("dataset_train_split: train[:10%]", "dataset_train_split: train[:10%] (line 5)"), ("loss_type: dft", "hone has the plain loss"),
        ("packing: true\npacking_strategy: wrapped", "hone packs whole rows"), ("learning_rat: 1", "did you mean learning_rate?"),
        ("use_dora: true", "hone has LoRA"), ("chat_template_path: x", "chat_template.jinja"), ("lora_rank: 8", "did you mean lora_r?"),
        ("bnb_4bit_quant_type: fp4", "hone quantises to NF4")],
    "mlx": [
        ("fine_tune_type: dora", "fine_tune_type: dora (line 6): hone has lora and full"), ("iter: 3", "did you mean iters?"),
        ("lora_parameters: {rnak: 8}", "lora_parameters.rnak: 8 (line 6): unknown, did you mean lora_parameters.rank?"),
        ("optimizer: muon", "optimizer: muon (line 6)"), ("resume_adapter_file: x.safetensors", "PEFT's layout"),
        ("lr_schedule: {name: step_decay, arguments: [1, 2]}", "cosine_decay and linear_schedule"),
        ("hf_dataset: {path: billsum}", "download the data set"), ("lora_rank: 8", "lora_rank: 8 (line 6): unknown, did you mean lora_parameters.rank?")],
}


class Configs(Case):
    def setUp(self):
        super().setUp()
        (self.dir / "data/split").mkdir(parents=True)
        (self.dir / "model").symlink_to(TINY)
        chats = [{"messages": [{"role": "user", "content": f"What is {i}?"}, {"role": "assistant", "content": f"It is {i * i}."}]} for i in range(12)]
        alpaca = [{"instruction": f"Say {i}.", "input": "", "output": f"{i}!"} for i in range(12)]
        self.write("data/chats.jsonl", *chats)
        self.write("data/alpaca.jsonl", *alpaca)
        self.write("data/identity.json", json.dumps(alpaca[:4]))
        self.write("data/sharegpt.jsonl", *({"conversations": [{"from": "human", "value": f"And {i}?"}, {"from": "gpt", "value": "Yes."}]}
                                            for i in range(12)))
        self.write("data/texts.jsonl", *({"text": f"The number {i} follows {i - 1}."} for i in range(12)))
        self.write("data/prompts.jsonl", *({"prompt": f"{i} + 1 = ", "completion": str(i + 1)} for i in range(12)))
        (self.dir / "data/pairs").mkdir()
        for name in ("train", "valid", "test"):
            self.write(f"data/split/{name}.jsonl", *chats)
            self.write(f"data/pairs/{name}.jsonl", *({"question": f"{i} + 1 = ", "answer": str(i + 1)} for i in range(12)))
        self.write("data/dataset_info.json", {
            "identity": {"file_name": "identity.json"},
            "alpaca_demo": {"file_name": "alpaca.jsonl", "columns": {"prompt": "instruction", "query": "input", "response": "output"}},
            "glaive_demo": {"file_name": "sharegpt.jsonl", "formatting": "sharegpt", "columns": {"messages": "conversations", "tools": "tools"}},
            "c4_demo": {"file_name": "texts.jsonl", "columns": {"prompt": "text"}},
            "hub_demo": {"hf_hub_url": "llamafactory/x"},
            "renamed_demo": {"file_name": "alpaca.jsonl", "columns": {"prompt": "question"}}})

    def hone(self, *args, code=0):
        result = run(*args, cwd=self.dir)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def options(self, *args):
        """What `hone config convert` prints, without comments."""
        lines = [line for line in self.hone("config", "convert", *args).stdout.splitlines() if not line.startswith("#")]
        return dict(re.fullmatch(r"(\w+): (.*?) +# .*", line).groups() for line in lines)

    def test_published_configs_convert_and_train(self):
        self.assertEqual({str(p.relative_to(CONFIGS)) for p in CONFIGS.rglob("*.y*ml")}, set(EXPECTED))
        for tool in GOOD:
            self.assertGreaterEqual(sum(name.startswith(tool) for name in EXPECTED), 5)
        for name, expected in EXPECTED.items():
            with self.subTest(name):
                options = self.options(CONFIGS / name)
                self.assertEqual(options, expected)
                direct = self.hone("train", CONFIGS / name, "--json")
                result = json.loads(direct.stdout)
                out = self.dir / expected["output_dir"]
                self.assertEqual(result["method"], expected.get("finetuning_type", "lora"))
                self.assertGreater(result["steps"], 0)
                for text in SAYS.get(name, ()):
                    self.assertIn(text, direct.stderr)
                    self.assertIn(text, self.hone("config", "convert", CONFIGS / name).stdout)
                # the converted file gives the same run
                weights = "model.safetensors" if expected.get("finetuning_type") == "full" else "adapter_model.safetensors"
                before = (out / weights).read_bytes()
                shutil.rmtree(out)
                self.write("own.yaml", self.hone("config", "convert", CONFIGS / name).stdout)
                again = self.hone("train", "own.yaml", "--json")
                self.assertEqual((out / weights).read_bytes(), before)
                self.assertNotIn("config", again.stderr)
                shutil.rmtree(out)

    def test_every_key_of_a_file_is_in_what_it_becomes(self):
        for name in EXPECTED:
            text = self.hone("config", "convert", CONFIGS / name).stdout
            for key in re.findall(r"^(\w+):", (CONFIGS / name).read_text(), re.M):
                with self.subTest(f"{name}: {key}"):
                    self.assertRegex(text, rf"# .*\b{key}\b")

    def test_wrong_keys_are_refused_by_name(self):
        count = 0
        for tool, lines in WRONG.items():
            for line, says in lines:
                with self.subTest(f"{tool}: {line}"):
                    config = self.write("wrong.yaml", *GOOD[tool], line)
                    result = self.hone("plan", config, code=2)
                    self.assertIn(line.split("\n")[-1].split(":")[0], result.stderr)
                    self.assertIn(says, result.stderr)
                    self.assertEqual(result.stderr.count("\n"), 1)
                    count += 1
        self.assertGreaterEqual(count, 30)

    # Fails if the line of what is not needed takes what the file asks for.
    def test_what_is_asked_for_and_not_done_is_never_called_not_needed(self):
        for name in EXPECTED:
            text = self.hone("config", "convert", CONFIGS / name).stdout
            idle = "".join(re.findall(r"^# not needed: .*", text, re.M))
            self.assertNotRegex(idle, r"\b(push_|hub_|wandb|report_to|mlflow|deepspeed|fsdp|run_name|plot_loss)", name)

    # Fails if a file of preferences fails with "wrong keys".
    def test_a_config_for_preferences_says_first_that_it_is_one(self):
        for tool, line, names in (("axolotl", "rl: dpo", "dpo (rl in line 6)"), ("llamafactory", "pref_beta: 0.1", "DPO (pref_beta in line 6)"),
                                  ("trl", "beta: 0.1", "DPO (beta in line 5)"), ("mlx", "train_mode: dpo", "dpo (train_mode in line 6)")):
            with self.subTest(tool):
                result = self.hone("train", self.write("dpo.yaml", *GOOD[tool], line, "no_such_key: 1"), code=2)
                self.assertIn(f"dpo.yaml: this is a config for another method of training, {names}: hone has supervised", result.stderr)
                self.assertIn("the chosen answer of each preference row", result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1)

    def test_all_wrong_keys_stand_in_one_message(self):
        wrong = [f"wrong_{i}: {i}" for i in range(40)]
        result = self.hone("train", self.write("wrong.yaml", *GOOD["axolotl"], *wrong), code=2)
        self.assertIn("hone cannot follow 40 keys of this Axolotl config: wrong_0: 0 (line 6): unknown; wrong_1: 1 (line 7)", result.stderr)
        for i in range(40):
            self.assertIn(f"wrong_{i}: {i}", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        many = self.hone("train", self.write("wrong.yaml", *GOOD["axolotl"], *(f"wrong_{i}: {i}" for i in range(400))), code=2)
        self.assertRegex(many.stderr, r"cannot follow 400 keys .*; and \d+ more \(docs/configs.md")

    def test_good_configs_of_a_few_lines_are_recognised(self):
        for tool, lines in GOOD.items():
            with self.subTest(tool):
                config = self.write("few.yaml", *lines)
                said = self.hone("config", "convert", config).stdout
                self.assertIn(dict(axolotl="an Axolotl", llamafactory="a LLaMA-Factory", trl="a TRL", mlx="an MLX-LM")[tool] + " config", said)
                self.assertEqual(said, self.hone("config", "convert", config, "--config-format", tool).stdout)
                self.hone("plan", config)

    def test_flags_and_own_options(self):
        config = self.write("few.yaml", *GOOD["trl"], "recompute: full", "device: cpu", "excess_length: drop")
        options = self.options(config, "--lora-r", 3, "--data", "data/texts.jsonl")
        self.assertEqual((options["recompute"], options["device"], options["excess_length"]), ("full", "cpu", "drop"))
        self.assertEqual((options["lora_r"], options["dataset_path"]), ("3", "data/texts.jsonl"))
        text = self.hone("config", "convert", config, "--lora-r", 3).stdout
        for comment in (f"# from {config}\n", "# --lora-r\n", "# line 4 (max_length)\n", "# the default of TRL\n"):
            self.assertIn(comment, text)
        # a model and data that flags give need not be where the file says
        away = self.write("away.yaml", "model: mlx-community/x", "data: mlx-community/wikisql", "train: true", "iters: 1")
        self.assertIn("give it with --model", self.hone("config", "convert", away, code=2).stderr)
        self.assertEqual(self.options(away, "--model", "model")["lora_target_modules"], "all-linear")
        factory = self.write("factory.yaml", "model_name_or_path: x/y", "stage: sft", "dataset: identity", "dataset_dir: nowhere",
                             "output_dir: out", "lora_rank: 4")
        self.assertIn("dataset_info.json", self.hone("config", "convert", factory, code=2).stderr)
        self.assertEqual(self.options(factory, "--data", "data/chats.jsonl")["dataset_path"], "data/chats.jsonl")

    def test_only_completions_are_trained_as_in_trl(self):
        config = self.write("few.yaml", *GOOD["trl"])
        self.assertEqual(self.options(config)["train_on_inputs"], "true")
        strings = self.options(config, "--data", "data/prompts.jsonl")
        self.assertEqual((strings["train_on_inputs"], strings["raw"]), ("false", "true"))
        both = self.write("both.yaml", *GOOD["trl"], "completion_only_loss: false")
        self.assertEqual(self.options(both, "--data", "data/prompts.jsonl")["train_on_inputs"], "true")

    def test_own_yaml_stays_as_it_is(self):
        own = self.write("own.yaml", "model: model", "data: data/chats.jsonl", "output: out", "max_steps: 1", "lora_r: 4")
        self.assertEqual(self.options(own), {"model_name_or_path": "model", "dataset_path": "data/chats.jsonl", "output_dir": "out",
                                             "max_steps": "1", "lora_r": "4"})
        result = self.hone("train", own, "--json")
        self.assertNotIn("read as", result.stderr)
        self.assertEqual(json.loads(result.stdout)["steps"], 1)
        one = self.write("one.yaml", "model: model", "ignore_bias_buffers: true")
        self.assertIn("--config-format trl", self.hone("train", one, code=2).stderr)
        self.hone("train", own, "--config-format", "trl", code=2)

    def test_mistakes_with_files(self):
        own = self.write("own.yaml", "model: model")
        for args, says in ((("train", own, own), "two files of options"), (("config", "convert"), "needs a FILE"),
                           (("config", "own.yaml"), "write hone config convert own.yaml;"),
                           (("config", "convert", own, "--output", "new.yaml"), "> new.yaml"), (("config", "convert", "nowhere.yaml"), "nowhere.yaml"),
                           (("train", "stray", own), "stray"), (("train", own, "--config", own), "two files of options")):
            result = run(*args, cwd=self.dir)
            self.assertIn(result.returncode, (2, 3), result.stderr)
            self.assertIn(says, result.stderr)

    def convert(self, *args):
        """The exit code of a conversion, its text, and the process's peak of memory in bytes."""
        with open(self.dir / "said", "wb") as said:
            child = subprocess.Popen([HONE, "config", "convert", *args], cwd=self.dir, stdout=said, stderr=said)
            _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode, (self.dir / "said").read_text(errors="replace"), 1024 * usage.ru_maxrss

    def test_many_paths_take_memory_only_for_their_sum(self):
        names = [f"{i:04}-" + "x" * 400 for i in range(2000)]
        head = "base_model: model", "adapter: lora", "lora_r: 8", "lora_alpha: 16", "learning_rate: 1e-4", "micro_batch_size: 2", "num_epochs: 1"
        self.write("many.yml", *head, "datasets:", *(f"  - path: {name}" for name in names))
        code, text, peak = self.convert("many.yml")
        self.assertEqual(code, 0, text[:500])
        self.assertIn(",".join(names[:3]), text)
        self.assertLess(peak, 100 << 20)
        self.write("modules.yml", *head, "datasets: [{path: a.jsonl}]", "lora_target_modules:",
                   *(f"  - {name}" for name in names))
        self.assertLess(self.convert("modules.yml")[2], 100 << 20)

    def test_lists_that_multiply_are_refused(self):
        (self.dir / "deep").mkdir()
        (self.dir / "deep/config.json").write_text(json.dumps({"num_hidden_layers": 9000}))
        self.write("mlx.yaml", "model: deep", "train: true", "data: data", "num_layers: 8999", "lora_parameters:", "  rank: 8", "  scale: 20.0",
                   "  keys: [" + ", ".join(f"k{i:03}{'y' * 60}" for i in range(900)) + "]")
        code, text, peak = self.convert("mlx.yaml")
        self.assertEqual(code, 8, text[:500])
        self.assertIn("more than 4 MB of paths or names", text)
        self.assertLess(peak, 100 << 20)

    def test_max_samples_takes_the_first_rows_of_each_file(self):
        line = ("train", "--model", "model", "--data", "data/chats.jsonl,data/texts.jsonl", "--output", "out", "--num-train-epochs", 1, "--json",
                "--per-device-train-batch-size", 1)
        self.assertEqual(json.loads(self.hone(*line, "--max-samples", 3).stdout)["steps"], 6)
        self.write("data/few.jsonl", *(self.dir / "data/chats.jsonl").read_text().splitlines()[:3])
        self.write("data/few-texts.jsonl", *(self.dir / "data/texts.jsonl").read_text().splitlines()[:3])
        kept = (self.dir / "out/adapter_model.safetensors").read_bytes()
        self.hone(*line[:4], "data/few.jsonl,data/few-texts.jsonl", *line[5:], "--resume", "none")
        self.assertEqual((self.dir / "out/adapter_model.safetensors").read_bytes(), kept)


main(Configs, Configs)
