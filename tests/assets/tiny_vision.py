"""tiny_vision.py PATH TEXT CONFIG: a seeded random model with a vision part, whose text part has the configuration and the tokenizer
of the model TEXT."""
import json
import pathlib
import shutil
import sys

import torch
import transformers as tf

path, text, config = sys.argv[1:]
config = json.loads(config)
family = config.pop("family")
torch.manual_seed(1234)
parts = getattr(tf, family + "Config")(text_config=tf.AutoConfig.from_pretrained(text), **config)
getattr(tf, family + "ForConditionalGeneration")(parts).float().save_pretrained(path)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(pathlib.Path(text) / name, pathlib.Path(path) / name)
