"""Records what transformers computes for a tiny random model of each family, and checks exports.

    record.py DATA                 writes DATA/FAMILY/{config.json, model.safetensors,
                                   expected.safetensors, expected.json}
    record.py --check DATA FOLDER  compares the logits of FOLDER/FAMILY with those of DATA/FAMILY, to
                                   the bit; FOLDER/FAMILY has the same weights

Needs torch and transformers 5. It is not run in CI: the tests read what it has written.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

HEADS = dict(num_attention_heads=4, num_key_value_heads=2)
SIZES = dict(vocab_size=53, hidden_size=16, num_hidden_layers=2, intermediate_size=28,
             max_position_embeddings=24, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=3)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=0.25,
              high_freq_factor=4.0, original_max_position_embeddings=32)
FAMILIES = {
    "gpt2": transformers.GPT2Config(
        vocab_size=53, n_embd=16, n_head=4, n_layer=2, n_positions=24, bos_token_id=1,
        eos_token_id=1),
    "llama2": transformers.LlamaConfig(**SIZES, num_attention_heads=4, attention_bias=True,
                                       mlp_bias=True),
    # Of the four turns one is as before, one is between, two are stretched.
    "llama3": transformers.LlamaConfig(**{**SIZES, "max_position_embeddings": 64}, **HEADS,
                                       head_dim=8, rope_parameters=LLAMA3,
                                       tie_word_embeddings=True),
    "mistral": transformers.MistralConfig(**SIZES, **HEADS, sliding_window=7),
    "qwen2": transformers.Qwen2Config(**SIZES, **HEADS, use_sliding_window=True, sliding_window=9,
                                      max_window_layers=1,
                                      rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "qwen3": transformers.Qwen3Config(**SIZES, **HEADS, head_dim=6, tie_word_embeddings=True),
}
SEQUENCES, SEQ, STEPS = 3, 24, 20


def rms_norm(self, x):
    """In the dtype of x: transformers' own computes in float32."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def loss_of(model, inputs, targets):
    logits = model(inputs).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def record(folder, config, seed):
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm.weight" in name or "layernorm.weight" in name or ".ln_" in name and \
                name.endswith("weight")
            parameter.normal_(1.0 if is_norm else 0.0, 0.2)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    model = model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = rms_norm.__get__(module)
    tokens = torch.randint(config.vocab_size, (2, SEQUENCES, SEQ))
    inputs, targets = tokens
    logits, loss = loss_of(model, inputs, targets)
    loss.backward()
    tensors = {"grad." + name: parameter.grad for name, parameter in model.named_parameters()}
    tensors["logits"] = logits.detach()
    save_file({name: t.float().contiguous() for name, t in tensors.items()},
              folder / "expected.safetensors")

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8,
                                  weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of(model, inputs, targets)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    (folder / "expected.json").write_text(json.dumps(
        {"inputs": inputs.flatten().tolist(), "targets": targets.flatten().tolist(),
         "losses": losses, "transformers": transformers.__version__}) + "\n")


def check(data, folder):
    tokens = torch.arange(48).reshape(2, 24)
    for family in FAMILIES:
        logits = [transformers.AutoModelForCausalLM.from_pretrained(path / family)(tokens).logits
                  for path in (data, folder)]
        assert torch.equal(*logits), family
        print(family, "has equal logits")


def main():
    if sys.argv[1] == "--check":
        return check(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    for seed, (family, config) in enumerate(FAMILIES.items()):
        record(pathlib.Path(sys.argv[1]) / family, config, seed)


if __name__ == "__main__":
    main()
