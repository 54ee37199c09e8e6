// Checkpoint files that Python's safetensors reads or writes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/places.hpp"
#include "support/small_checkpoint.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::python_test {
namespace {

using test::TemporaryFolder;

struct PythonRun {
  int status = -1;
  std::string out;
};

// Runs python3 with the packages of scripts/install_deps.sh --tests and those of the machine.
PythonRun python(const std::string& arguments) {
  const std::string command =
      fmt::format("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='{}/third_party/python' python3 {} 2>&1",
                  test::kSourceDir, arguments);
  const auto close = [](std::FILE* file) { ::pclose(file); };
  std::unique_ptr<std::FILE, decltype(close)> pipe{::popen(command.c_str(), "r"), close};
  PythonRun run;
  char part[4096];
  while (const std::size_t got = std::fread(part, 1, sizeof part, pipe.get())) {
    run.out.append(part, got);
  }
  run.status = ::pclose(pipe.release());
  return run;
}

class Python : public testing::Test {
 protected:
  void SetUp() override {
    const PythonRun found = python("-c 'import safetensors'");
    if (found.status != 0) {
      GTEST_SKIP() << "python3 has no package safetensors (scripts/install_deps.sh --tests fetches "
                      "it): "
                   << found.out;
    }
  }
  static PythonRun interop(const char* what, const std::filesystem::path& folder) {
    return python(fmt::format("'{}/tests/checkpoint/interop.py' {} '{}'", test::kSourceDir, what,
                              folder.string()));
  }
};

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) { text += fmt::format("{:02x}", static_cast<unsigned char>(c)); }
  return text;
}

// A little of everything, with buffers of each dtype that no parameter has.
std::vector<test::StateTensor> state_with_buffers() {
  std::vector<test::StateTensor> state = test::small_state();
  for (const auto& [dtype, bytes] : std::map<std::string, std::uint64_t>{
           {"F64", 8}, {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1}, {"U8", 1}, {"BOOL", 1}}) {
    state.push_back({"extras",
                     "buffer." + dtype,
                     "extra",
                     dtype,
                     {3},
                     64 * bytes,
                     std::string(3 * bytes, '\1')});
  }
  return state;
}

TEST_F(Python, ReadsWhatIsSavedInOneFileAndInSeveralWithAnIndex) {
  for (const std::uint64_t shard_bytes : {60, 1'000}) {
    const TemporaryFolder folder;
    const Manifest manifest =
        test::write_checkpoint(folder.path(), state_with_buffers(), shard_bytes);
    const PythonRun run = interop("read", folder.path());
    ASSERT_EQ(run.status, 0) << run.out;
    const auto files = nlohmann::json::parse(run.out);
    const std::vector<test::StateTensor> expected = state_with_buffers();
    for (std::size_t t = 0; t < expected.size(); ++t) {
      const ManifestTensor& tensor = manifest.tensors[t];
      const auto& found = files.at(tensor.file).at(tensor.name);
      EXPECT_EQ(found, nlohmann::json({tensor.dtype, tensor.shape.dims(), hex(expected[t].data)}));
    }
  }
}

TEST_F(Python, ReadsWhatPythonWrites) {
  const TemporaryFolder folder;
  const PythonRun run = interop("write", folder.path());
  ASSERT_EQ(run.status, 0) << run.out;
  SafetensorsReader reader{folder.path()};
  const auto values = [&](const std::string& name) {
    std::vector<float> all(static_cast<std::size_t>(reader.entries().at(name).shape.elems()));
    reader.read(name, 0, all);
    return all;
  };
  EXPECT_EQ(reader.entries().size(), 4U);
  EXPECT_EQ(reader.entries().at("a.weight").shape, (Shape{2, 2}));
  EXPECT_EQ(values("a.weight"), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values("a.half"), (std::vector<float>{1, -2, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(values("b"), (std::vector<float>{-0.5F}));
  EXPECT_EQ(reader.entries().at("count").dtype, "I64");
}

}  // namespace
}  // namespace tessera::python_test
