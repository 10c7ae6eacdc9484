"""tokenizer.py PATH FOLDER GGUF: the tokenizer of a vocabulary as a Hugging Face directory."""
import sys

import transformers as tf

path, folder, name = sys.argv[1:]
tf.AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(path)
