#include "fuzz/fuzz.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace tessera::fuzz {
namespace {

constexpr std::size_t kMostOfLine = 1000;

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7F;
}

}  // namespace

void holds(bool ok, const char* property) {
  if (ok) { return; }
  std::fprintf(stderr, "fuzz: this does not hold: %s\n", property);
  std::abort();
}

void is_message(std::string_view what) {
  holds(!what.empty(), "an error says something");
}

void is_line(std::string_view what) {
  is_message(what);
  holds(what.size() <= kMostOfLine, "an error is short enough to be read");
  holds(std::ranges::none_of(what, is_control), "an error is one line");
}

std::uint8_t Input::byte() noexcept {
  if (rest_.empty()) { return 0; }
  const auto value = static_cast<std::uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return value;
}

std::string_view Input::text() noexcept {
  const std::size_t said = byte();  // read before the text
  const std::size_t bytes = std::min(said, rest_.size());
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

MemoryFile::MemoryFile() : descriptor_{::memfd_create("fuzz", MFD_CLOEXEC)} {
  holds(descriptor_ >= 0, "the system makes files in memory");
  path_ = fmt::format("/proc/self/fd/{}", descriptor_);
}

MemoryFile::~MemoryFile() {
  ::close(descriptor_);
}

void MemoryFile::write(std::string_view bytes) {
  const bool written = ::ftruncate(descriptor_, 0) == 0 &&
                       ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == std::ssize(bytes);
  holds(written, "a file in memory takes the input");
}

}  // namespace tessera::fuzz
