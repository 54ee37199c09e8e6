#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/common/json_text.hpp"
#include "tools/common/output_file.hpp"
#include "tools/common/table.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

// Provenance does not affect the state: an unreadable file is ignored.
Json provenance_of(const CheckpointReader& reader) {
  try {
    return Json::parse(reader.provenance());
  } catch (const FormatError&) { return {}; } catch (const Json::exception&) {
    return {};
  }
}

Json document_of(const CheckpointReader& reader, const Json& provenance) {
  const Manifest& manifest = reader.manifest();
  Json tensors = Json::array();
  for (const ManifestTensor& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"role", tensor.role},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape.dims()},
                       {"bytes", tensor.bytes},
                       {"file", tensor.file},
                       {"first_byte", tensor.first_byte}});
  }
  return {{"checkpoint", reader.folder().string()},
          {"format", manifest.format},
          {"step", manifest.step},
          {"state", manifest.state},
          {"values", manifest.values},
          {"files", manifest.files},
          {"tensors", tensors},
          {"provenance", provenance}};
}

void print_texts(std::string_view title, const std::map<std::string, std::string>& texts) {
  if (texts.empty()) { return; }
  fmt::print("\n{}\n", title);
  for (const auto& [name, value] : texts) {
    fmt::print("  {:<22} {}\n", shown(name), shown(value));
  }
}

void print_provenance(const Json& provenance) {
  if (!provenance.is_object() || provenance.empty()) { return; }
  fmt::print("\nwritten by (provenance.json)\n");
  for (const auto& [name, value] : provenance.items()) {
    fmt::print("  {:<22} {}\n", shown(name),
               shown(value.is_string() ? value.get<std::string>() : json_text(value)));
  }
}

void print_role(const Manifest& manifest, std::string_view role, std::string_view title) {
  Table table{{fmt::format("{}", title), "dtype", "shape", "size"}};
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.role != role) { continue; }
    table.add(
        {shown(tensor.name), tensor.dtype, tensor.shape.to_string(), format_bytes(tensor.bytes)});
    ++tensors;
    bytes += tensor.bytes;
  }
  if (tensors == 0) { return; }
  table.add({fmt::format("{} in all", tensors), "", "", format_bytes(bytes)});
  fmt::print("\n{}", table.text());
}

}  // namespace

void inspect_checkpoint(const CheckpointSettings& settings) {
  const CheckpointReader reader{checkpoint_at(settings.paths.front())};
  const Manifest& manifest = reader.manifest();
  const Json provenance = provenance_of(reader);
  std::uint64_t bytes = 0;
  for (const auto& [name, size] : manifest.files) { bytes += size; }
  fmt::print("{}: step {}, {} tensors, {} in {} files, format {}\n", reader.folder().string(),
             manifest.step, manifest.tensors.size(), format_bytes(bytes), manifest.files.size(),
             manifest.format);
  print_texts("training state", manifest.state);
  print_texts("values of the trainer", manifest.values);
  print_provenance(provenance);
  print_role(manifest, "weight", "weights");
  print_role(manifest, "master", "master weights");
  print_role(manifest, "remainder", "remainders of master weights");
  print_role(manifest, "moment", "moments");
  print_role(manifest, "scales", "scales of moments");
  print_role(manifest, "extra", "buffers of the trainer");
  if (!settings.json.empty()) {
    write_output(settings.json, json_text(document_of(reader, provenance), 1) + "\n");
  }
}

}  // namespace tessera::tools
