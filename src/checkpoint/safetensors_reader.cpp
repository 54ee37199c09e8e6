#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/shown.hpp"
#include "checkpoint/safetensors_header.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/half.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are copied as they stand in the file");

std::string reason() {
  return std::generic_category().message(errno);
}

std::uint64_t regular_file_bytes(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) {
    throw FormatError(
        fmt::format("{}: {}", path.string(), failed ? failed.message() : "not a regular file"));
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, failed);
  if (failed) { throw FormatError(fmt::format("{}: {}", path.string(), failed.message())); }
  return bytes;
}

void read_at(std::ifstream& file, const std::filesystem::path& path, std::uint64_t first,
             std::span<std::byte> out) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(first));
  file.read(reinterpret_cast<char*>(out.data()), std::ssize(out));
  if (!file) {
    throw FormatError(
        fmt::format("{}: cannot read {} bytes at byte {}", path.string(), out.size(), first));
  }
}

std::uint64_t checked_header_bytes(const std::string& path, std::span<const std::byte> length,
                                   std::uint64_t file_bytes) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, length.data(), sizeof(bytes));
  if (bytes > kMaxHeaderBytes || bytes > file_bytes - kLengthBytes) {
    throw FormatError(fmt::format(
        "{}: byte 0: the header's length is given as {}, but the file has {} bytes (limit {})",
        path, bytes, file_bytes, kMaxHeaderBytes));
  }
  return bytes;
}

// Values of `Half` at the end of `out`'s own memory, widened from the front: value i lies at or
// behind float i, so that only values that have been used are overwritten.
template <class Half>
void widen(std::span<const std::byte> raw, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Half value;
    std::memcpy(&value.bits, raw.data() + 2 * i, 2);
    out[i] = value.to_float();
  }
}

}  // namespace

SafetensorsReader::SafetensorsReader(std::filesystem::path path) : path_{std::move(path)} {
  const std::uint64_t file_bytes = regular_file_bytes(path_);
  file_.open(path_, std::ios::binary);
  if (!file_) { throw FormatError(fmt::format("{}: cannot open: {}", path_.string(), reason())); }
  if (file_bytes < kLengthBytes) {
    throw FormatError(fmt::format("{}: ends at byte {}, before the header's length of {} bytes",
                                  path_.string(), file_bytes, kLengthBytes));
  }
  std::byte length[kLengthBytes];
  read_at(file_, path_, 0, length);
  std::string header(checked_header_bytes(path_.string(), length, file_bytes), '\0');
  read_at(file_, path_, kLengthBytes, std::as_writable_bytes(std::span{header}));
  entries_ = parse_header(path_.string(), header, file_bytes);
}

void SafetensorsReader::read(const std::string& name, std::int64_t first, std::span<float> out) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw FormatError(fmt::format("{}: there is no tensor '{}'", path_.string(), name));
  }
  const Entry& entry = found->second;
  expects(
      first >= 0 && first <= entry.shape.elems() && std::ssize(out) <= entry.shape.elems() - first,
      "SafetensorsReader: read outside the tensor");

  const std::size_t width = entry.dtype == "F32" ? 4 : 2;
  const std::span<std::byte> raw = std::as_writable_bytes(out).last(out.size() * width);
  const std::uint64_t at = entry.first_byte + static_cast<std::uint64_t>(first) * width;
  if (entry.dtype == "F32") {
    read_at(file_, path_, at, raw);
  } else if (entry.dtype == "BF16") {
    read_at(file_, path_, at, raw);
    widen<bfloat16>(raw, out);
  } else if (entry.dtype == "F16") {
    read_at(file_, path_, at, raw);
    widen<float16>(raw, out);
  } else {
    throw FormatError(fmt::format("{}: tensor '{}' has dtype {}, expected F32, BF16 or F16",
                                  path_.string(), shown(name), shown(entry.dtype)));
  }
}

}  // namespace tessera
