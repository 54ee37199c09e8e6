#include "nn/hub_family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.hpp"

namespace tessera::nn {
namespace {

using Config = DecoderConfig;
using enum HubColumns;

// Probabilities of dropout are here too: they change the training, and DecoderOptions gives them.
constexpr std::array kWithoutEffect =
    std::to_array<std::string_view>({"_attn_implementation_autoset",
                                     "_commit_hash",
                                     "_name_or_path",
                                     "attention_dropout",
                                     "attn_pdrop",
                                     "bad_words_ids",
                                     "bos_token_id",
                                     "chunk_size_feed_forward",
                                     "decoder_start_token_id",
                                     "embd_pdrop",
                                     "eos_token_id",
                                     "finetuning_task",
                                     "id2label",
                                     "initializer_range",
                                     "is_llama_config",
                                     "label2id",
                                     "n_ctx",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "output_scores",
                                     "pad_token_id",
                                     "prefix",
                                     "pretraining_tp",
                                     "problem_type",
                                     "resid_pdrop",
                                     "return_dict",
                                     "return_dict_in_generate",
                                     "sep_token_id",
                                     "summary_activation",
                                     "summary_first_dropout",
                                     "summary_proj_to_labels",
                                     "summary_type",
                                     "summary_use_proj",
                                     "task_specific_params",
                                     "tokenizer_class",
                                     "torchscript",
                                     "transformers.js_config",
                                     "transformers_version",
                                     "unsloth_version",
                                     "use_bfloat16",
                                     "use_cache"});

const std::vector<HubName> kGPT2Names{
    {"wte.weight", "transformer.wte.weight"},
    {"wpe.weight", "transformer.wpe.weight"},
    {"ln_1.weight", "transformer.h.{}.ln_1.weight"},
    {"ln_1.bias", "transformer.h.{}.ln_1.bias"},
    {"attn.c_attn.weight", "transformer.h.{}.attn.c_attn.weight"},
    {"attn.c_attn.bias", "transformer.h.{}.attn.c_attn.bias"},
    {"attn.c_proj.weight", "transformer.h.{}.attn.c_proj.weight"},
    {"attn.c_proj.bias", "transformer.h.{}.attn.c_proj.bias"},
    {"ln_2.weight", "transformer.h.{}.ln_2.weight"},
    {"ln_2.bias", "transformer.h.{}.ln_2.bias"},
    {"mlp.c_fc.weight", "transformer.h.{}.mlp.c_fc.weight"},
    {"mlp.c_fc.bias", "transformer.h.{}.mlp.c_fc.bias"},
    {"mlp.c_proj.weight", "transformer.h.{}.mlp.c_proj.weight"},
    {"mlp.c_proj.bias", "transformer.h.{}.mlp.c_proj.bias"},
    {"ln_f.weight", "transformer.ln_f.weight"},
    {"ln_f.bias", "transformer.ln_f.bias"},
    {"lm_head.weight", "lm_head.weight"},
};

const std::vector<HubName> kLlamaNames{
    {"wte.weight", "model.embed_tokens.weight"},
    {"ln_1.weight", "model.layers.{}.input_layernorm.weight"},
    {"attn.c_attn.weight", "model.layers.{}.self_attn.q_proj.weight", queries, true},
    {"attn.c_attn.weight", "model.layers.{}.self_attn.k_proj.weight", keys, true},
    {"attn.c_attn.weight", "model.layers.{}.self_attn.v_proj.weight", values, true},
    {"attn.c_attn.bias", "model.layers.{}.self_attn.q_proj.bias", queries},
    {"attn.c_attn.bias", "model.layers.{}.self_attn.k_proj.bias", keys},
    {"attn.c_attn.bias", "model.layers.{}.self_attn.v_proj.bias", values},
    {"attn.q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"},
    {"attn.k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"},
    {"attn.c_proj.weight", "model.layers.{}.self_attn.o_proj.weight", all, true},
    {"attn.c_proj.bias", "model.layers.{}.self_attn.o_proj.bias"},
    {"ln_2.weight", "model.layers.{}.post_attention_layernorm.weight"},
    {"mlp.c_fc.weight", "model.layers.{}.mlp.gate_proj.weight", gate, true},
    {"mlp.c_fc.weight", "model.layers.{}.mlp.up_proj.weight", up, true},
    {"mlp.c_fc.bias", "model.layers.{}.mlp.gate_proj.bias", gate},
    {"mlp.c_fc.bias", "model.layers.{}.mlp.up_proj.bias", up},
    {"mlp.c_proj.weight", "model.layers.{}.mlp.down_proj.weight", all, true},
    {"mlp.c_proj.bias", "model.layers.{}.mlp.down_proj.bias"},
    {"ln_f.weight", "model.norm.weight"},
    {"lm_head.weight", "lm_head.weight"},
};

const HubFlag kTied{"tie_word_embeddings", {&Config::tied_head}, false};
const HubFlag kAttentionBias{"attention_bias", {&Config::qkv_bias, &Config::output_bias}, false};
const HubFlag kMLPBias{"mlp_bias", {&Config::mlp_bias}, false};

// Sizes of the families since Llama; they differ in what files may leave out.
std::vector<HubSize> llama_sizes(std::int64_t kv_heads, std::int64_t head_elems) {
  return {{"vocab_size", &Config::vocab},
          {"hidden_size", &Config::hidden},
          {"intermediate_size", &Config::wide},
          {"num_hidden_layers", &Config::layers},
          {"num_attention_heads", &Config::heads},
          {"num_key_value_heads", &Config::kv_heads, kv_heads},
          {"head_dim", &Config::head_elems, head_elems},
          {"max_position_embeddings", &Config::seq}};
}

constexpr Config llama_parts() {
  Config parts;
  parts.norm = NormKind::rms_norm;
  parts.positions = PositionKind::rotary;
  parts.mlp = MLPKind::swiglu;
  parts.qkv_bias = parts.output_bias = parts.mlp_bias = false;
  parts.tied_head = false;
  return parts;
}

HubFamily like_llama(std::string_view model_type, std::string_view architecture,
                     std::string_view base_model) {
  return {.model_type = model_type,
          .architecture = architecture,
          .base_model = base_model,
          .prefix = "model.",
          .parts = llama_parts(),
          .sizes = llama_sizes(0, 0),
          .norm_eps = "rms_norm_eps",
          .flags = {kTied},
          .fixed = {{"is_encoder_decoder", "false"},
                    {"partial_rotary_factor", "1.0"},
                    {"rope_interleaved", "false"},
                    {"use_mrope", "false"}},
          .activation = "hidden_act",
          .activations = {{"silu", MLPKind::swiglu}},
          .names = kLlamaNames};
}

HubFamily gpt2() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .base_model = "GPT2Model",
          .prefix = "transformer.",
          .parts = {},
          .sizes = {{"vocab_size", &Config::vocab},
                    {"n_positions", &Config::seq},
                    {"n_embd", &Config::hidden},
                    {"n_layer", &Config::layers},
                    {"n_head", &Config::heads},
                    {"n_inner", &Config::wide, 0}},
          .norm_eps = {},
          .flags = {{"tie_word_embeddings", {&Config::tied_head}, true}},
          .fixed = {{"layer_norm_epsilon", "1e-05"},
                    {"scale_attn_weights", "true"},
                    {"scale_attn_by_inverse_layer_idx", "false"},
                    {"reorder_and_upcast_attn", "false"},
                    {"add_cross_attention", "false"},
                    {"is_encoder_decoder", "false"}},
          .activation = "activation_function",
          .activations = {{"gelu_new", MLPKind::gelu_tanh},
                          {"gelu_pytorch_tanh", MLPKind::gelu_tanh},
                          {"gelu", MLPKind::gelu}},
          .names = kGPT2Names};
}

HubFamily llama() {
  HubFamily family = like_llama("llama", "LlamaForCausalLM", "LlamaModel");
  family.flags.push_back(kAttentionBias);
  family.flags.push_back(kMLPBias);
  return family;
}

HubFamily mistral() {
  HubFamily family = like_llama("mistral", "MistralForCausalLM", "MistralModel");
  family.sizes = llama_sizes(8, 0);
  family.windows = HubWindows::all_layers;
  return family;
}

HubFamily qwen2() {
  HubFamily family = like_llama("qwen2", "Qwen2ForCausalLM", "Qwen2Model");
  family.parts.qkv_bias = true;
  family.sizes = llama_sizes(32, 0);
  family.windows = HubWindows::by_layer;
  return family;
}

HubFamily qwen3() {
  HubFamily family = like_llama("qwen3", "Qwen3ForCausalLM", "Qwen3Model");
  family.parts.head_norms = true;
  family.sizes = llama_sizes(32, 128);
  family.flags.push_back(kAttentionBias);
  family.windows = HubWindows::by_layer;
  return family;
}

}  // namespace

const std::vector<HubFamily>& hub_families() {
  static const std::vector<HubFamily> families{gpt2(), llama(), mistral(), qwen2(), qwen3()};
  return families;
}

const HubFamily* find_hub_family(std::string_view model_type) {
  const auto found = std::ranges::find(hub_families(), model_type, &HubFamily::model_type);
  return found == hub_families().end() ? nullptr : &*found;
}

const HubFamily& hub_family(std::string_view model_type) {
  if (const HubFamily* found = find_hub_family(model_type)) { return *found; }
  throw ConfigError(fmt::format("the family \"{}\" of Hugging Face's models: expected {}",
                                model_type, hub_family_names()));
}

std::string hub_family_names() {
  std::string names;
  for (const HubFamily& family : hub_families()) {
    const bool last = &family == &hub_families().back();
    if (!names.empty()) { names += last ? " or " : ", "; }
    names += fmt::format("\"{}\"", family.model_type);
  }
  return names;
}

bool is_hub_field_without_effect(std::string_view field) {
  return std::ranges::find(kWithoutEffect, field) != kWithoutEffect.end();
}

}  // namespace tessera::nn
