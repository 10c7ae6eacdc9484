"""smollm2.py PATH GGUF: the published model, quantised, as a Hugging Face directory in bfloat16."""
import os
import sys

import torch
import transformers as tf

path, gguf = sys.argv[1:]
folder, name = os.path.split(gguf)
tokenizer = tf.AutoTokenizer.from_pretrained(folder, gguf_file=name)
loaded = tf.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
config = loaded.config.to_dict()
for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
    config.pop(key, None)
model = tf.LlamaForCausalLM(tf.LlamaConfig(**config))
model.load_state_dict(loaded.state_dict())
model.to(torch.bfloat16).save_pretrained(path)
tokenizer.save_pretrained(path)
