#include "tools/train/init_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <system_error>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/simulate.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/options/job_options.hpp"
#include "tools/train/resume.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::tools {
namespace {

constexpr std::streamoff kBlock = std::streamoff{1} << 20;
constexpr std::streamoff kBlocks = 256;  // blocks of a larger file: seconds even on a slow disk
constexpr std::string_view kPrefix = "transformer.";  // in models that were saved with a head
constexpr std::string_view kTable = "wte.weight";
constexpr std::string_view kHead = "lm_head.weight";  // never with the prefix
constexpr std::int64_t kBlockElems = std::int64_t{1} << 18;

/// The names of the model's tensors, as its ranks request them.
std::vector<std::string> names_of(const nn::DecoderConfig& config) {
  std::vector<std::string> names;
  simulate_rank({}, [&](World& world) {
    auto gpt = shard(nn::Decoder(config), world, ModelOptions{});
    const ShardedModel& model = gpt.model();
    for (std::size_t u = 0; u < model.unit_count(); ++u) {
      for (const ParameterSpec& spec : model.layout(model.unit(u)).specs()) {
        if (spec.tied_to) { continue; }
        names.push_back(nn::gpt2_weight_name(
            {model.unit_name(model.unit(u)), spec.name, spec.shape, spec.trainable, 0}));
      }
    }
  });
  return names;
}

SafetensorsReader reader_of(const std::string& path) {
  try {
    return SafetensorsReader{path};
  } catch (const FormatError& error) { throw FormatError(fmt::format("--init: {}", error.what())); }
}

std::string layer_name(std::string_view prefix, std::int64_t layer) {
  return fmt::format("{}h.{}.ln_1.weight", prefix, layer);
}

std::string name_in(const InitNames& names, const std::string& name) {
  if (name == kHead || (names.table_is_head && name == kTable)) { return std::string{kHead}; }
  return names.prefix + name;
}

// A program that writes a tied tensor once may write it under either name.
InitNames names_in(const SafetensorsReader& reader, bool tied_head) {
  const auto has = [&](const std::string& name) { return reader.entries().contains(name); };
  InitNames names;
  if (!has(layer_name("", 0)) && has(layer_name(kPrefix, 0))) { names.prefix = kPrefix; }
  names.table_is_head =
      tied_head && !has(name_in(names, std::string{kTable})) && has(std::string{kHead});
  return names;
}

// When the ranks read their parts they find missing tensors and wrong shapes, but not a file of a
// deeper model.
void check_layers(const SafetensorsReader& reader, const std::string& prefix, std::int64_t wanted) {
  std::int64_t layers = 0;
  while (reader.entries().contains(layer_name(prefix, layers))) { ++layers; }
  if (layers == wanted) { return; }
  const std::string path = reader.path().string();
  if (layers == 0) {
    throw FormatError(fmt::format(
        "--init: {} holds no tensor '{}', not after '{}' either, but {} others{}; give a file with "
        "GPT-2's names",
        path, layer_name("", 0), kPrefix, reader.entries().size(),
        reader.entries().empty()
            ? ""
            : fmt::format(", '{}' first", shown(reader.entries().begin()->first))));
  }
  throw FormatError(
      fmt::format("--init: {} holds {} layers and the model has {}; give the sizes "
                  "that the file was written with",
                  path, layers, wanted));
}

std::int64_t count_not_finite(SafetensorsReader& reader, const std::string& name) {
  const std::int64_t elems = reader.entries().at(name).shape.elems();
  std::vector<float> values;
  std::int64_t count = 0;
  for (std::int64_t first = 0; first < elems; first += kBlockElems) {
    values.resize(static_cast<std::size_t>(std::min(kBlockElems, elems - first)));
    reader.read(name, first, values);
    count += std::ranges::count_if(values, [](float value) { return !std::isfinite(value); });
  }
  return count;
}

void tell_if_not_finite(const std::string& path, const std::vector<std::string>& names) {
  SafetensorsReader reader{path};
  std::int64_t values = 0;
  std::vector<std::string> tensors;
  for (const std::string& name : names) {
    const std::int64_t count = count_not_finite(reader, name);
    values += count;
    if (count > 0) { tensors.push_back(name); }
  }
  if (tensors.empty()) { return; }
  tell(
      fmt::format("warning: --init: {} of the values in {} are not finite, in {}; results computed "
                  "from them are meaningless\n",
                  values, path, shown_names(tensors)));
}

// The file at the path, or the files of a folder or an index.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool several = path.extension() == ".json" || std::filesystem::is_directory(path, ignored);
  return several ? reader_of(path.string()).files() : std::vector{path};
}

void add_file(XXH3_state_t* state, const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  file.seekg(0, std::ios::end);
  const std::streamoff bytes = file.tellg();
  XXH3_128bits_update(state, &bytes, sizeof bytes);
  std::vector<char> block(static_cast<std::size_t>(kBlock));
  const std::streamoff last = (bytes - 1) / kBlock;
  for (std::streamoff i = 0; i < kBlocks && file && bytes > 0; ++i) {
    const std::streamoff first = kBlock * (last < kBlocks ? i : i * last / (kBlocks - 1));
    if (first >= bytes) { break; }
    const std::streamsize wanted = std::min(kBlock, bytes - first);
    file.seekg(first).read(block.data(), wanted);
    XXH3_128bits_update(state, block.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file) { throw FormatError(fmt::format("--init: {} cannot be read", path.string())); }
}

}  // namespace

InitPath find_init(const std::string& asked) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (fs::exists(fs::path{asked} / "manifest.json", failed) || !has_steps(asked)) {
    return {asked};
  }
  const NewestCheckpoint newest = newest_checkpoint(asked, LoadOptions::What::weights);
  if (!fs::exists(newest.path, failed)) {
    throw ConfigError(
        fmt::format("--init: {} is in parts; join them first (tessera checkpoint merge {} --to "
                    "DIR), and give DIR",
                    newest.path.string(), asked));
  }
  InitPath found{newest.path.string()};
  for (const std::string& damaged : newest.damaged) {
    found.messages.push_back(fmt::format("warning: --init: {}\n", damaged));
  }
  return found;
}

InitFile examine_init(const std::string& path, const nn::DecoderConfig& config) {
  const SafetensorsReader reader = reader_of(path);
  InitFile file;
  file.names = names_in(reader, config.tied_head);
  check_layers(reader, file.names.prefix, config.layers);
  std::set<std::string> wanted;
  for (const std::string& name : names_of(config)) { wanted.insert(name_in(file.names, name)); }
  for (const auto& [name, entry] : reader.entries()) {
    (wanted.contains(name) ? file.tensors : file.extra).push_back(name);
  }
  return file;
}

void verify_init(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const bool is_folder = fs::is_directory(path, failed);
  const fs::path folder = is_folder ? fs::path{path} : fs::path{path}.parent_path();
  const bool is_step = is_folder && step_of(folder);  // and damaged if it has no manifest
  if (!is_step && !fs::exists(folder / "manifest.json", failed)) { return; }
  try {
    verify_weights(folder);
  } catch (const FormatError& error) { throw FormatError(fmt::format("--init: {}", error.what())); }
}

void tell_of_init(const std::string& path, const InitFile& file) {
  if (!file.names.prefix.empty()) {
    tell(fmt::format("note: --init: reading the names in {} without their prefix '{}'\n", path,
                     file.names.prefix));
  }
  if (file.names.table_is_head) {
    tell(fmt::format("note: --init: {} has no '{}'; reading '{}', which GPT-2 ties to it\n", path,
                     file.names.prefix + std::string{kTable}, kHead));
  }
  if (!file.extra.empty()) {
    tell(fmt::format(
        "warning: --init: {} holds {} tensor{} that the model has not, and that {} left out: {}\n",
        path, file.extra.size(), file.extra.size() == 1 ? "" : "s",
        file.extra.size() == 1 ? "is" : "are", shown_names(file.extra)));
  }
  tell_if_not_finite(path, file.tensors);
}

WeightName weight_name_in(const InitNames& names) {
  return [names](const ParameterInfo& parameter) {
    return name_in(names, nn::gpt2_weight_name(parameter));
  };
}

std::string fingerprint_of_weights(const std::string& path) {
  if (path.empty()) { return {}; }
  const auto free = [](XXH3_state_t* state) { XXH3_freeState(state); };
  const std::unique_ptr<XXH3_state_t, decltype(free)> state{XXH3_createState(), free};
  XXH3_128bits_reset(state.get());
  for (const std::filesystem::path& file : files_of(path)) { add_file(state.get(), file); }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void check_same_init(const Settings& settings, const std::vector<std::string>& fingerprints) {
  std::vector<std::size_t> others;
  for (std::size_t rank = 1; rank < fingerprints.size(); ++rank) {
    if (fingerprints[rank] != fingerprints.front()) { others.push_back(rank); }
  }
  if (others.empty()) { return; }
  throw ConfigError(
      fmt::format("--init: {} would start from weights that differ from rank 0's ({}); give every "
                  "machine the same file",
                  some_ranks(others), settings.init.empty() ? "none" : settings.init));
}

}  // namespace tessera::tools
