#include "data/token_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/enumerator.hpp"
#include "data/npy_header.hpp"
#include "tessera/base/error.hpp"

namespace tessera::data {
namespace {

using namespace std::string_view_literals;

constexpr std::int64_t kHeaderBytes = 256 * 4;
constexpr std::int64_t kBytesExamined = 4096;
constexpr std::size_t kLeastText = 32;    // bytes that show text
constexpr std::size_t kLeastTokens = 32;  // tokens that show their width
// Ids of 4 or 8 bytes from vocabularies up to 2^18 have upper halves below the first, and some
// lower half of at least the second.
constexpr std::uint64_t kUpperHalves = (1 << 18) >> 16;
constexpr std::uint64_t kLeastLower = 64;

/// A header of llm.c's: 256 int32, of which the first three are these and the number of tokens.
struct Header {
  std::int64_t magic;
  std::int64_t version;
  std::int64_t token_bytes;
};
constexpr std::array kHeaders = {Header{20240520, 1, 2}, Header{20240801, 7, 4}};

/// How the files of a container begin.
struct Container {
  std::string_view start;
  const char* name;
};
constexpr std::string_view kNpyMagic = "\x93NUMPY"sv;
constexpr std::array kContainers = {
    Container{kNpyMagic, "a NumPy array (.npy)"},
    Container{"PK\x03\x04"sv, "a zip file (.zip, .npz, .pt)"},
    Container{"\x1F\x8B\x08"sv, "a gzip file"},
    Container{"\x28\xB5\x2F\xFD"sv, "a zstd file"},
    Container{"BZh"sv, "a bzip2 file"},
    Container{"\xFD"
              "7zXZ\0"sv,
              "an xz file"},
    Container{"PAR1"sv, "a Parquet file"},
    Container{"ARROW1"sv, "an Arrow file"},
    Container{"\x89HDF\r\n\x1A\n"sv, "an HDF5 file"},
    Container{"\x80\x02\x8A\x0A"sv, "a pickle of PyTorch"},
    Container{"\x80\x04\x95"sv, "a Python pickle"},
    Container{"\x7F"
              "ELF"sv,
              "a program"},
};

std::string start_of(const DataFile& file) {
  std::string start(static_cast<std::size_t>(std::min(file.size(), kBytesExamined)), '\0');
  file.read(0, std::as_writable_bytes(std::span{start}));
  return start;
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    value |= std::uint64_t{static_cast<unsigned char>(bytes[b])} << (8 * b);
  }
  return value;
}

std::int64_t int32_at(std::string_view start, std::size_t index) {
  return static_cast<std::int32_t>(little_endian(start.substr(4 * index, 4)));
}

// The size of a JSON header, then the header.
bool is_safetensors(std::string_view start, std::int64_t file_bytes) {
  return start.size() > 10 && start.substr(8, 2) == "{\"" &&
         little_endian(start.substr(0, 8)) < static_cast<std::uint64_t>(file_bytes);
}

/// The bytes of the character of UTF-8 that `text` begins with; 0 if there is none, or it is a
/// control character. A character that `text` cuts off counts with what there is.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) {
    return first >= 0x20 || "\t\n\r\f"sv.find(text.front()) != std::string_view::npos ? 1 : 0;
  }
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) { return 0; }
  const std::string_view rest = text.substr(1, bytes - 1);
  const bool goes_on = std::ranges::all_of(
      rest, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; });
  return goes_on ? 1 + rest.size() : 0;
}

bool is_text(std::string_view start) {
  if (start.size() < kLeastText) { return false; }
  while (!start.empty()) {
    const std::size_t bytes = character_bytes(start);
    if (bytes == 0) { return false; }
    start.remove_prefix(bytes);
  }
  return true;
}

std::string container_of(std::string_view start, std::int64_t file_bytes) {
  for (const Container& container : kContainers) {
    if (start.starts_with(container.start)) { return container.name; }
  }
  return is_safetensors(start, file_bytes) ? "a safetensors file" : "";
}

/// The bytes of the integers that a raw file seems to hold: more than 2 if the upper halves of all
/// of them are 0 but not their lower halves, or nearly so.
std::size_t apparent_bytes(std::string_view start) {
  for (const std::size_t width : {std::size_t{8}, std::size_t{4}}) {
    const std::size_t count = start.size() / width;
    if (count < kLeastTokens) { continue; }
    std::uint64_t upper = 0;  // largest
    std::uint64_t lower = 0;
    for (std::size_t i = 0; i < count; ++i) {
      lower = std::max(lower, little_endian(start.substr(i * width, 2)));
      upper = std::max(upper, little_endian(start.substr(i * width + 2, width - 2)));
    }
    if (upper == 0 ? lower > 0 : upper < kUpperHalves && lower >= kLeastLower) { return width; }
  }
  return 2;
}

[[noreturn]] void refuse(const DataFile& file, const std::string& what) {
  throw FormatError(fmt::format("{}: {}", file.path().string(), what));
}

TokenFileLayout layout_after(const Header& header, const DataFile& file, std::string_view start) {
  if (file.size() < kHeaderBytes) {
    refuse(file, fmt::format("ends at byte {}, inside the header of {} bytes", file.size(),
                             kHeaderBytes));
  }
  if (int32_at(start, 1) != header.version) {
    refuse(file, fmt::format("byte 4: the header has version {}, expected {}", int32_at(start, 1),
                             header.version));
  }
  const std::int64_t held = (file.size() - kHeaderBytes) / header.token_bytes;
  if (int32_at(start, 2) != held) {
    refuse(file, fmt::format("byte 8: the header says {} tokens, but the file has {}",
                             int32_at(start, 2), held));
  }
  return {kHeaderBytes, header.token_bytes};
}

[[noreturn]] void ask_for_format(const DataFile& file, const std::string& looks_like) {
  throw ConfigError(
      fmt::format("{}: looks like {} name the type of its tokens, `token_format` "
                  "uint16 or uint32, to read it from its first byte on",
                  file.path().string(), looks_like));
}

TokenFileLayout detected(const DataFile& file, const std::string& start) {
  if (start.starts_with(kNpyMagic)) { return npy_layout(file); }
  if (start.size() >= 4) {
    for (const Header& header : kHeaders) {
      if (int32_at(start, 0) == header.magic) { return layout_after(header, file, start); }
    }
  }
  std::string container = container_of(start, file.size());
  if (container.empty() && is_text(start)) { container = "text"; }
  if (!container.empty()) {
    ask_for_format(file, fmt::format("{}, not like tokens: write them as .npy (numpy.save(path, "
                                     "array)) or as plain uint16 or uint32, or",
                                     container));
  }
  const std::size_t width = apparent_bytes(start);
  if (width == 2) { return {}; }
  ask_for_format(
      file,
      fmt::format("integers of {} bytes, since the upper {} bytes of each of the first {} are "
                  "below {}: write them as .npy (numpy.save(path, array)){}",
                  width, width - 2, start.size() / width, kUpperHalves,
                  width == 4 ? ", or" : " or as uint32, or"));
}

}  // namespace

TokenFileLayout token_file_layout(const DataFile& file, TokenFormat format) {
  require_enumerator("open_tokens: token_format", format, TokenFormat::uint32);
  if (format == TokenFormat::uint16) { return {}; }
  if (format == TokenFormat::uint32) { return {.token_bytes = 4}; }
  return detected(file, start_of(file));
}

std::string container_of(const DataFile& file) {
  return container_of(start_of(file), file.size());
}

}  // namespace tessera::data
