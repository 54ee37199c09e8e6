// A whole checkpoint folder: a manifest, to which the target adds the checksum, and two files. They
// are opened, read and verified, as a state and as weights only. Zero bytes and a mark divide the
// input.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/load_source.hpp"
#include "checkpoint/manifest.hpp"
#include "fuzz/fuzz.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/reader.hpp"

namespace tessera::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark{"\0|", 2};

/// A step's folder, on a file system in memory if the machine has one.
class StepFolder {
 public:
  StepFolder()
      : parent_{(fs::exists("/dev/shm") ? fs::path{"/dev/shm"} : fs::temp_directory_path()) /
                ("tessera-fuzz-" + std::to_string(::getpid()))} {
    fs::create_directories(path());
  }
  ~StepFolder() {
    std::error_code ignored;
    fs::remove_all(parent_, ignored);
  }
  StepFolder(const StepFolder&) = delete;
  StepFolder& operator=(const StepFolder&) = delete;

  [[nodiscard]] fs::path path() const { return parent_ / "step-00000012"; }
  void write(const char* name, std::string_view bytes) const {
    std::ofstream file{path() / name, std::ios::binary};
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  fs::path parent_;
};

/// The next part of `rest`, up to a mark or its end.
std::string_view next_part(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(kMark), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + kMark.size(), rest.size()));
  return part;
}

void read_all(checkpoint::LoadSource& source, std::size_t most) {
  for (const ManifestTensor& tensor : source.manifest().tensors) {
    holds(tensor.bytes <= most, "a tensor lies in a file that is there");
    std::vector<std::byte> bytes(tensor.bytes);
    source.read(tensor.file, tensor.first_byte, bytes);
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const fuzz::StepFolder folder;
  std::string_view rest = fuzz::text_of(data, size);
  const std::string manifest{fuzz::next_part(rest)};
  folder.write("manifest.json", manifest + checkpoint::manifest_seal(manifest));
  folder.write("model.safetensors", fuzz::next_part(rest));
  folder.write("optimizer.safetensors", rest);
  using What = LoadOptions::What;
  fuzz::refuses<FormatError>([&] {
    fuzz::read_all(*checkpoint::open_load_source(folder.path(), What::everything), size);
  });
  const auto weights = folder.path() / "model.safetensors";
  fuzz::refuses<FormatError>(
      [&] { fuzz::read_all(*checkpoint::open_load_source(weights, What::weights), size); });
  fuzz::refuses<FormatError>([&] { CheckpointReader{folder.path()}.verify(); });
  return 0;
}
