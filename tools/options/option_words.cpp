#include "tools/options/option_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace tessera::tools {
namespace {

/// Fields of the library's structs, and the options that set them. The library quotes fields in
/// backticks; fields that cannot be ordinary words are recognised without.
constexpr std::array<std::pair<std::string_view, std::string_view>, 45> kFields = {{
    {"accumulate", "--accumulate"},
    {"accumulate_mode", "--accumulate-mode"},
    {"beta1", "--beta1"},
    {"beta2", "--beta2"},
    {"budget_bytes", "--budget"},
    {"tuning.channel_priority", "--channel-priority"},
    {"clip_norm", "--clip"},
    {"compute", "--precision"},
    {"convert_moments", "--resume-moments convert"},
    {"deadline", "--deadline"},
    {"deterministic", "--deterministic"},
    {"device", "--device"},
    {"eps", "--eps"},
    {"gradient", "--gradient-dtype"},
    {"host_threads", "--host-threads"},
    {"loss_scaling", "--loss-scale"},
    {"loss_scaling.initial", "--loss-scale"},
    {"lr", "--lr"},
    {"master_weights", "--master-weights"},
    {"max_skips", "--max-skips"},
    {"moments", "--moments"},
    {"momentum", "--momentum"},
    {"nccl.max_ctas", "--nccl-max-ctas"},
    {"nccl.min_ctas", "--nccl-min-ctas"},
    {"nccl.windows", "--nccl-windows"},
    {"nondeterministic_attention", "--nondeterministic-attention"},
    {"offload", "--offload"},
    {"offload_keep", "--offload-keep"},
    {"persist_elems", "--persist"},
    {"prefetch", "--prefetch"},
    {"tuning.prefetch_backward", "--prefetch-backward"},
    {"products", "--products"},
    {"reduce", "--reduce-dtype"},
    {"reshard", "--reshard"},
    {"rounding", "--rounding"},
    {"sequence_parallel", "--sequence-parallel"},
    {"shard_group", "--shard-group"},
    {"tuning.spared_multiprocessors", "--spare-multiprocessors"},
    {"temperature", "--temperature"},
    {"tensor_slices", "--tensor-slices"},
    {"threads", "--threads"},
    {"token_format", "--token-format"},
    {"top_k", "--top-k"},
    {"top_p", "--top-p"},
    {"weight_decay", "--weight-decay"},
}};

/// Whether `c` continues a word: a path may contain a field's name.
bool belongs(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '/' ||
         c == '\'';
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const std::size_t end = at + from.size();
    const bool inside = (at > 0 && (belongs(text[at - 1]) || text[at - 1] == '.')) ||
                        (end < text.size() && belongs(text[end])) ||
                        (end + 1 < text.size() && text[end] == '.' && belongs(text[end + 1]));
    if (!inside) { text.replace(at, from.size(), to); }
    at += inside ? from.size() : to.size();
  }
}

}  // namespace

std::string with_options_for_fields(std::string message) {
  for (const auto& [field, option] : kFields) {
    replace(message, "`" + std::string{field} + "`", option);
    if (field.find('_') != std::string_view::npos) { replace(message, field, option); }
  }
  return message;
}

std::string_view field_of(std::string_view option) {
  const auto found = std::ranges::find(kFields, option, &decltype(kFields)::value_type::second);
  return found == kFields.end() ? std::string_view{} : found->first;
}

}  // namespace tessera::tools
