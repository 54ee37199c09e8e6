#include <fmt/format.h>

#include <bit>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/kept_path.hpp"
#include "checkpoint/file_values.hpp"
#include "checkpoint/readable_file.hpp"
#include "checkpoint/safetensors_header.hpp"
#include "checkpoint/step_folders.hpp"
#include "checkpoint/weights_index.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are copied as they stand in the file");

bool file_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// The file through which a folder of weights is read.
std::filesystem::path weights_in(const std::filesystem::path& folder) {
  std::filesystem::path file = folder / "model.safetensors";
  std::filesystem::path index = folder / ("model" + std::string{checkpoint::kIndexEnd});
  if (file_exists(file) && file_exists(index)) {
    throw FormatError(
        fmt::format("{}: the folder holds both {} and {}; give the path of one of them",
                    folder.string(), file.filename().string(), index.filename().string()));
  }
  if (file_exists(file)) { return file; }
  if (file_exists(index)) { return index; }
  throw FormatError(
      fmt::format("{}: the folder holds neither {} nor {}; give the path of the weights",
                  folder.string(), file.filename().string(), index.filename().string()));
}

// Without the bytes of other machines, a part's file is a valid file with other numbers.
void refuse_part(const std::filesystem::path& weights) {
  std::error_code failed;
  const std::filesystem::path target = std::filesystem::canonical(weights, failed);
  if (checkpoint::is_part_folder(weights.parent_path()) ||
      (!failed && checkpoint::is_part_folder(target.parent_path()))) {
    throw FormatError(checkpoint::text_of_part(weights));
  }
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : path_{kept_path(path)}, open_{std::make_unique<checkpoint::ReadableFiles>()} {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path_, ignored);
  const std::filesystem::path weights = is_folder ? weights_in(path_) : path_;
  refuse_part(weights);
  if (weights.extension() == ".json") {
    open_index(weights);
  } else {
    open_file(weights);
  }
}

SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&& other) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&& other) noexcept = default;

void SafetensorsReader::open_file(const std::filesystem::path& file) {
  const auto opened = open_->at(file);
  files_.push_back(file);
  entries_ =
      checkpoint::parse_header(file.string(), checkpoint::read_header(*opened), opened->bytes());
}

void SafetensorsReader::open_index(const std::filesystem::path& index) {
  files_.push_back(index);
  const auto listed = checkpoint::parse_index(
      index.string(), checkpoint::read_text(index, checkpoint::kMaxHeaderBytes));
  std::set<std::string> names;
  for (const auto& [tensor, file] : listed) { names.insert(file); }
  for (const std::string& name : names) {
    const std::filesystem::path file = index.parent_path() / name;
    const auto opened = open_->at(file);
    files_.push_back(file);
    for (auto& [tensor, entry] : checkpoint::parse_header(
             file.string(), checkpoint::read_header(*opened), opened->bytes())) {
      const auto found = listed.find(tensor);
      if (found != listed.end() && found->second == name) { entries_.emplace(tensor, entry); }
    }
  }
  for (const auto& [tensor, file] : listed) {
    if (entries_.contains(tensor)) { continue; }
    throw FormatError(fmt::format(
        "{}: weight_map: tensor '{}' is not in file {}; the index belongs to other files",
        index.string(), shown(tensor), shown(file)));
  }
}

const SafetensorsReader::Entry& SafetensorsReader::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw FormatError(fmt::format("{}: there is no tensor '{}'", path_.string(), shown(name)));
  }
  return found->second;
}

void SafetensorsReader::read_bytes(const std::string& name, std::uint64_t first,
                                   std::span<std::byte> out) {
  const Entry& found = entry(name);
  expects(first <= found.bytes && out.size() <= found.bytes - first,
          "SafetensorsReader: the bytes are outside the tensor");
  open_->at(found.file)->read_at(found.first_byte + first, out);
}

void SafetensorsReader::read(const std::string& name, std::int64_t first, std::span<float> out) {
  const Entry& found = entry(name);
  expects(
      first >= 0 && first <= found.shape.elems() && std::ssize(out) <= found.shape.elems() - first,
      "SafetensorsReader: the elements are outside the tensor");
  const std::optional<DType> dtype = checkpoint::dtype_named(found.dtype);
  if (!dtype) {
    throw FormatError(fmt::format("{}: tensor '{}' has dtype {}, expected F32, BF16 or F16",
                                  found.file.string(), shown(name), shown(found.dtype)));
  }
  const std::uint64_t at = static_cast<std::uint64_t>(first) * checkpoint::file_bytes_of(*dtype);
  checkpoint::read_values(*dtype, out,
                          [&](std::span<std::byte> raw) { read_bytes(name, at, raw); });
}

}  // namespace tessera
