#include "tools/checkpoint/byte_progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tessera/base/bytes.hpp"
#include "tools/common/progress_bar.hpp"
#include "tools/common/say.hpp"

namespace tessera::tools {

ByteProgress::ByteProgress(std::FILE* file, std::string title, std::uint64_t bytes)
    : file_{file}, title_{std::move(title)}, all_{bytes}, terminal_{isatty(fileno(file)) != 0} {}

ByteProgress::~ByteProgress() {
  if (!open_) { return; }
  say("\r\033[K", file_);
  std::fflush(file_);
}

void ByteProgress::add(std::uint64_t bytes) {
  done_ += bytes;
  if (!terminal_ || Clock::now() - shown_ < std::chrono::milliseconds{100}) { return; }
  shown_ = Clock::now();
  draw();
}

void ByteProgress::draw() {
  const double spent = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double rate = static_cast<double>(done_) / std::max(spent, 1e-3);
  const std::string rest = fmt::format(" {} of {}  {}/s", format_bytes(done_), format_bytes(all_),
                                       format_bytes(static_cast<std::size_t>(rate)));
  say(fmt::format("\r\033[K{}", progress_line(file_, title_, done_, all_, rest)), file_);
  std::fflush(file_);
  open_ = true;
}

}  // namespace tessera::tools
