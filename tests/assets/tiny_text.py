"""tiny_text.py PATH TINY CONFIG: a seeded random model as tiny.py makes it, of a family whose text has a configuration of its own.
The tokenizer is that of the tiny model TINY. Buffers that are saved (scalars of layers) are drawn too: as they begin, they do nothing.
"""
import json
import sys

import torch
import transformers as tf

path, tiny, config = sys.argv[1:]
config = json.loads(config)
family = config.pop("family")
torch.manual_seed(1234)
model = getattr(tf, family + "ForCausalLM")(getattr(tf, family + "TextConfig")(**config)).float()
parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
for name, tensor in model.state_dict().items():
    if name not in parameters:
        tensor.uniform_(0.5, 1.5)
model.save_pretrained(path)
tf.AutoTokenizer.from_pretrained(tiny).save_pretrained(path)
