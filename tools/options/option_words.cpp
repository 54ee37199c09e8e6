#include "tools/options/option_words.hpp"

#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace tessera::tools {
namespace {

/// No word of any language: where it stands alone it is the field.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kFields = {{
    {"accumulate_mode", "--accumulate-mode"},
    {"budget_bytes", "--budget"},
    {"clip_norm", "--clip"},
    {"loss_scaling", "--loss-scale"},
    {"master_weights", "--master-weights"},
    {"max_skips", "--max-skips"},
    {"offload_keep", "--offload-keep"},
    {"persist_elems", "--persist"},
    {"prefetch_backward", "--prefetch-backward"},
    {"shard_group", "--shard-group"},
    {"top_k", "--top-k"},
    {"top_p", "--top-p"},
    {"weight_decay", "--weight-decay"},
}};

/// Words too: fields where they stand in backticks.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kQuoted = {{
    {"`accumulate`", "--accumulate"},
    {"`compute`", "--precision"},
    {"`gradient`", "--gradient-dtype"},
    {"`offload`", "--offload"},
    {"`prefetch`", "--prefetch"},
    {"`reduce`", "--reduce-dtype"},
    {"`reshard`", "--reshard"},
    {"`rounding`", "--rounding"},
}};

/// Whether a word goes on there: a path may have a field's name in it.
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
    replace(message, field, option);
  }
  for (const auto& [field, option] : kQuoted) { replace(message, field, option); }
  return message;
}

}  // namespace tessera::tools
