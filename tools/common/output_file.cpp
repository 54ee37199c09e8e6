#include "tools/common/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string>
#include <system_error>

#include "tessera/base/atomic_file.hpp"
#include "tessera/base/error.hpp"
#include "tools/common/descriptor.hpp"
#include "tools/common/noted_signals.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

void write_stream(const fs::path& path, std::string_view text) {
  const Descriptor stream = open_for_writing(path, O_TRUNC);
  const int error = stream.is_open() ? write_all(stream, text) : errno;
  if (error == 0) { return; }
  throw Error(
      fmt::format("cannot write {}: {}", path.string(), std::generic_category().message(error)));
}

void write_file(const fs::path& path, std::string_view text) {
  AtomicFile file{path};
  file.write(std::as_bytes(std::span{text.data(), text.size()}));
  file.finish();
}

}  // namespace

bool is_stream(const fs::path& path) {
  std::error_code failed;
  const fs::path folder = fs::canonical(fs::absolute(path).parent_path(), failed);
  if (!failed && (folder == "/dev" || folder.string().starts_with("/proc/"))) { return true; }
  const fs::file_type type = fs::symlink_status(path, failed).type();
  return type == fs::file_type::fifo || type == fs::file_type::character ||
         type == fs::file_type::block || type == fs::file_type::socket;
}

void require_file(std::string_view option, const fs::path& path) {
  try {
    undisturbed([&] { const AtomicFile tried{path}; });
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{}: cannot write there: {}", option, error.what()));
  }
}

void require_writable(std::string_view option, const fs::path& path) {
  if (!is_stream(path)) { return require_file(option, path); }
  if (::access(path.c_str(), W_OK) != 0) {
    throw ConfigError(fmt::format("{}: cannot write {}: {}", option, path.string(),
                                  std::generic_category().message(errno)));
  }
}

void write_output(const fs::path& path, std::string_view text) {
  undisturbed([&] { is_stream(path) ? write_stream(path, text) : write_file(path, text); });
}

namespace {

void require_two_apart(const Output& first, const Output& second) {
  std::error_code ignored;
  if (fs::exists(first.path, ignored) && !fs::is_regular_file(first.path, ignored)) { return; }
  const auto place = [](const Output& output) {
    std::error_code failed;
    const fs::path whole = fs::weakly_canonical(fs::absolute(output.path), failed);
    return failed ? output.path.lexically_normal() : whole;
  };
  if (place(first) != place(second)) { return; }
  throw ConfigError(fmt::format("{} and {} would both write {}; give each its own file",
                                first.option, second.option, second.path.string()));
}

}  // namespace

void require_apart(const std::vector<Output>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!outputs[i].path.empty() && !outputs[j].path.empty()) {
        require_two_apart(outputs[j], outputs[i]);
      }
    }
  }
}

}  // namespace tessera::tools
