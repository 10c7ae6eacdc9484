"""The other side of compare.py: one run of PyTorch with PEFT, of TRL, or of llama.cpp. A process for each, as hone's are.

    compare_peer.py '{"kind": "train", "model": DIR, ...}'

Prints one JSON object at the end. Kinds:
  train   steps of LoRA, QLoRA or full fine-tuning on windows of random tokens: the seconds of each step after the first ones
  sft     TRL's SFTTrainer over a file of chats, the adapter saved; its first step is reported on standard error as hone reports its own
  decode  llama.cpp: tokens a second after the prompt
PyTorch gets what makes it quickest here: sdpa for attention, the adapter in the model's type, the fused AdamW.
"""
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
SEED, RATE = 42, 2e-4


def say(text):
    print(text, file=sys.stderr, flush=True)


def load(job):
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from transformers.utils import logging
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(job["threads"])
    torch.manual_seed(SEED)
    dtype = getattr(torch, job["dtype"])
    more = {}
    if job["method"] == "qlora":
        more = {"device_map": "cpu", "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype)}
    return AutoModelForCausalLM.from_pretrained(job["model"], dtype=dtype, attn_implementation="sdpa", **more)


def lora_config():
    from peft import LoraConfig
    return LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM", target_modules="all-linear")


def train(job):
    import torch
    from peft import get_peft_model
    net = load(job)
    net.config.use_cache = False
    if job["method"] != "full":
        net = get_peft_model(net, lora_config(), autocast_adapter_dtype=False)
    net.train()
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0, fused=True)
    seconds = []
    for step in range(job["warm"] + job["steps"]):
        ids = torch.randint(0, net.config.vocab_size, (job["batch"], job["length"]))
        begin = time.perf_counter()
        net(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds[job["warm"]:]}


def sft(job):
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer
    with open(job["data"], encoding="utf-8") as file:
        chats = [json.loads(line)["messages"] for line in file]
    rows = Dataset.from_list([{"prompt": chat[:-1], "completion": chat[-1:]} for chat in chats])

    class First(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 1:
                say("step 1")

    config = SFTConfig(output_dir=job["output"], per_device_train_batch_size=job["batch"], num_train_epochs=1,
                       max_steps=job.get("max_steps", -1), learning_rate=RATE, lr_scheduler_type="cosine", max_length=1024,
                       completion_only_loss=True, bf16=job["dtype"] == "bfloat16", use_cpu=True, gradient_checkpointing=False,
                       optim="adamw_torch_fused", logging_strategy="no", save_strategy="no", report_to="none", seed=SEED,
                       disable_tqdm=True)
    trainer = SFTTrainer(model=load(job), args=config, train_dataset=rows, peft_config=lora_config(), callbacks=[First()],
                         processing_class=AutoTokenizer.from_pretrained(job["model"]))
    trainer.train()
    trainer.save_model(job["output"])
    return {}


def decode(job):
    import llama_cpp
    import numpy as np
    model = llama_cpp.Llama(job["model"], n_ctx=512, n_threads=job["threads"], n_threads_batch=job["threads"], verbose=False)
    for token in model.tokenize(job["prompt"].encode(), special=True):
        model.eval([token])                             # a prompt at once ends with SIGILL, at an instruction of AMX (Q4_1)
    begin = time.perf_counter()
    for _ in range(job["tokens"]):
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), shape=(model.n_vocab(),))
        model.eval([int(logits.argmax())])
    return {"tokens_per_second": job["tokens"] / (time.perf_counter() - begin)}


def main():
    job = json.loads(sys.argv[1])
    print(json.dumps({"train": train, "sft": sft, "decode": decode}[job["kind"]](job)))


main()
