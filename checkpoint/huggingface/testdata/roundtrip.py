"""What Python's transformers and peft make of folders that pnode wrote.

    python3 roundtrip.py FOLDER...

Each FOLDER is a model, or an adapter whose base is the folder base_model_name_or_path beside
it. It is loaded and its logits for the tokens of tokens.json go to logits.json in it, computed
in float64. Then the weights are drawn anew, and the model is saved as FOLDER-theirs, by
save_pretrained, with tokens.json and logits.json again. transformers_test.go runs it.
"""
import json
import os
import shutil
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()


def load_model(folder):
    """The model in float64. Nothing may be missing in the files, and nothing left over."""
    model, info = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float64, output_loading_info=True)
    left = {k: v for k, v in info.items() if v}
    if left:
        sys.exit(f"{folder}: {left}")
    return model


def is_adapter(folder):
    return os.path.exists(os.path.join(folder, "adapter_config.json"))


def load(folder):
    if not is_adapter(folder):
        return load_model(folder)
    with open(os.path.join(folder, "adapter_config.json")) as f:
        base = json.load(f)["base_model_name_or_path"]
    base = load_model(os.path.join(os.path.dirname(folder), os.path.basename(base)))
    return PeftModel.from_pretrained(base, folder).double()


def write_logits(folder):
    with open(os.path.join(folder, "tokens.json")) as f:
        tokens = json.load(f)
    with torch.no_grad():
        logits = load(folder).eval()(torch.tensor([tokens])).logits[0]
    with open(os.path.join(folder, "logits.json"), "w") as f:
        json.dump({"tokens": tokens, "logits": logits.tolist()}, f)


def draw(model):
    for name, p in model.named_parameters():
        if is_trained(model, name):
            norm = ("norm" in name or "ln_" in name) and not name.endswith("bias")
            torch.nn.init.normal_(p.data, 1.0 if norm else 0.0, 0.3)


def is_trained(model, name):
    return not isinstance(model, PeftModel) or "lora_" in name


def save_anew(folder):
    model = load(folder)
    draw(model)
    theirs = folder + "-theirs"
    if isinstance(model, PeftModel):
        model.float().save_pretrained(theirs, save_embedding_layers=False)
    else:
        # In several files of the type that the folder's name asks for.
        kind = next((k for k in ("bfloat16", "float16") if k in folder), "float32")
        model.to(getattr(torch, kind)).save_pretrained(theirs, max_shard_size="12KB")
    shutil.copy(os.path.join(folder, "tokens.json"), theirs)
    write_logits(theirs)


if len(sys.argv) < 2:
    sys.exit(__doc__)
torch.manual_seed(1)
for argument in sys.argv[1:]:
    write_logits(argument)
    save_anew(argument)
print(f"{len(sys.argv) - 1} folders loaded and saved")
