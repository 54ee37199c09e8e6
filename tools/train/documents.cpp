#include "tools/train/documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <system_error>

#include "tessera/base/error.hpp"
#include "tools/options/job_options.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

constexpr const char* kNotGiven = "not given";

[[noreturn]] void require_with(const char* option, const char* other, const char* why) {
  throw ConfigError(fmt::format("{} needs {}: {}", option, other, why));
}

/// Runs `open`, whose errors then name the option.
template <class Open>
auto named(const char* option, const Open& open) {
  try {
    return open();
  } catch (const Error& error) { throw ConfigError(fmt::format("{}: {}", option, error.what())); }
}

std::shared_ptr<const TokenSource> open_mask(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw ConfigError(
        fmt::format("'{}' is a folder; give a file with one byte for each token", path));
  }
  return open_bytes(path);
}

void check_together(const Settings& settings) {
  const bool trains = !settings.data.empty() || !settings.tokens.empty();
  const bool evaluates = !settings.eval_data.empty();
  const auto without = [](bool given, const char* option, const char* other) {
    if (given) { throw ConfigError(fmt::format("{} has no effect without {}", option, other)); }
  };
  without(!trains && !settings.pack.empty(), "--pack", "--data or --tokens");
  without(!trains && !settings.loss_mask.empty(), "--loss-mask", "--data or --tokens");
  without(!evaluates && !settings.eval_pack.empty(), "--eval-pack", "--eval-data");
  without(!evaluates && !settings.eval_loss_mask.empty(), "--eval-loss-mask", "--eval-data");
  const bool by_file = settings.packs() && !packs_by_token(settings);
  if (!settings.eval_pack.empty() && !by_file) {
    throw ConfigError(settings.pack.empty()
                          ? "--eval-pack needs --pack: held-out data is packed as the data is"
                          : "--eval-pack has no effect: the token of --pack ends the documents of "
                            "--eval-data too");
  }
  if (evaluates && by_file && settings.eval_pack.empty()) {
    require_with("--pack FILE with --eval-data", "--eval-pack FILE",
                 "the positions of documents are those of one file of tokens");
  }
  if (evaluates && settings.loss_mask.empty() != settings.eval_loss_mask.empty()) {
    require_with(settings.loss_mask.empty() ? "--eval-loss-mask" : "--loss-mask with --eval-data",
                 settings.loss_mask.empty() ? "--loss-mask" : "--eval-loss-mask",
                 "both losses count the same kind of tokens");
  }
}

}  // namespace

bool packs_by_token(const Settings& settings) {
  return settings.packs() &&
         std::ranges::all_of(settings.pack, [](char c) { return c >= '0' && c <= '9'; });
}

Documents documents_of(const Settings& settings, DataOf data) {
  check_together(settings);
  const bool held_out = data == DataOf::held_out;
  const std::string& mask = held_out ? settings.eval_loss_mask : settings.loss_mask;
  const std::string& starts = held_out ? settings.eval_pack : settings.pack;
  Documents documents;
  if (packs_by_token(settings)) {
    documents.separator = named("--pack", [&] {
      return static_cast<std::int32_t>(
          parse_whole(settings.pack, 0, std::numeric_limits<std::int32_t>::max()));
    });
  } else if (!starts.empty()) {
    documents.starts =
        named(held_out ? "--eval-pack" : "--pack", [&] { return read_document_starts(starts); });
  }
  if (!mask.empty()) {
    documents.mask =
        named(held_out ? "--eval-loss-mask" : "--loss-mask", [&] { return open_mask(mask); });
  }
  return documents;
}

std::string pack_of(const Documents& documents) {
  if (documents.separator) { return std::to_string(*documents.separator); }
  return documents.starts == nullptr ? kNotGiven : content_of(*documents.starts);
}

std::string mask_of(const Documents& documents) {
  return documents.mask == nullptr ? kNotGiven : content_of(documents.mask.get());
}

}  // namespace tessera::tools
