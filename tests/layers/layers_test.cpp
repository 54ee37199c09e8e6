// Checks the layers of the design: allowed includes, and features that are restricted to one place.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <set>

#include "layers/source_tree.hpp"
#include "support/places.hpp"

namespace tessera::test::layers_test {
namespace {

const std::filesystem::path kRoot = test::kSourceDir;
const std::vector<std::string> kFolders = {"include", "src",   "kernels",
                                           "bench",   "tools", "examples"};

// Lowest first: each layer uses itself and earlier ones. The C headers are at the bottom;
// tessera.hpp is the header that includes the others.
const std::vector<std::string> kLayers = {
    "c.h",  "dlpack.h", "base",      "trace",  "device",      "kernels",  "memory",     "shard",
    "comm", "world",    "optim",     "engine", "pipeline",    "profile",  "checkpoint", "data",
    "nn",   "torch",    "torch.hpp", "c",      "tessera.hpp", "examples", "tools",      "bench"};

std::optional<std::size_t> height(const std::string& layer) {
  const auto found = std::find(kLayers.begin(), kLayers.end(), layer);
  if (found == kLayers.end()) { return {}; }
  return static_cast<std::size_t>(found - kLayers.begin());
}

/// "comm" for "include/tessera/world/world.hpp", "src/comm/..." and "comm/...".
std::string layer_of(std::string path) {
  for (const std::string prefix : {"include/", "src/", "tessera/"}) {
    if (path.rfind(prefix, 0) == 0) { path.erase(0, prefix.size()); }
  }
  return path.substr(0, path.find('/'));
}

/// The quoted include of `line`; empty if none.
std::string quoted_include(const SourceLine& line) {
  static const std::regex include{R"re(^\s*#\s*include\s+"([^"]+)")re"};
  std::smatch match;
  return std::regex_search(line.text, match, include) ? match[1].str() : "";
}

/// The error in the include of `line`; empty if none.
std::string fault_of(const SourceLine& line) {
  const std::string target = quoted_include(line);
  if (target.find('/') == std::string::npos) { return ""; }  // from the file's own folder
  const auto from = height(layer_of(line.file));
  const auto to = height(layer_of(target));
  if (!from) { return "is in no layer of the table"; }
  if (!to) { return "includes what is in no layer of the table"; }
  return *to > *from ? "includes a layer above its own" : "";
}

std::vector<SourceLine> all_lines() {
  std::vector<SourceLine> lines;
  for (const std::string& folder : kFolders) {
    const auto more = lines_under(kRoot, folder);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  return lines;
}

/// Files with a line that matches `pattern`.
std::set<std::string> files_with(const std::string& pattern) {
  const std::regex regex{pattern};
  std::set<std::string> files;
  for (const SourceLine& line : all_lines()) {
    if (std::regex_search(line.text, regex)) { files.insert(line.file); }
  }
  return files;
}

TEST(Layers, EachIncludesOnlyItselfAndTheLayersBelow) {
  std::size_t includes = 0;
  for (const SourceLine& line : all_lines()) {
    includes += quoted_include(line).empty() ? 0 : 1;
    const std::string fault = fault_of(line);
    if (!fault.empty()) { ADD_FAILURE() << line.where() << "\n  " << fault; }
  }
  EXPECT_GT(includes, 100U) << "the test has not found the sources";
}

TEST(Layers, TheTestSeesAnEdgeUpward) {
  const auto fault = [](const std::string& file, const std::string& target) {
    return fault_of({file, 1, "#include \"" + target + "\""});
  };
  EXPECT_NE(fault("src/shard/layout.cpp", "tessera/engine/strategy.hpp"), "");
  EXPECT_NE(fault("kernels/add/add_cpu.cpp", "memory/x.hpp"), "");
  EXPECT_NE(fault("include/tessera/nn/decoder.hpp", "strange/x.hpp"), "");
  EXPECT_EQ(fault("include/tessera/memory/buffer.hpp", "kernels/table.hpp"), "");
  EXPECT_EQ(fault("src/engine/a.cpp", "engine/b.hpp"), "");
}

/// Whether `line` includes a private header where only installed ones are allowed: in public
/// headers, the layers nn and c, examples and tools.
bool includes_private(const SourceLine& line) {
  const std::string target = quoted_include(line);
  const std::string layer = layer_of(line.file);
  const bool checked = line.file.rfind("include/", 0) == 0 || layer == "nn" || layer == "c" ||
                       layer == "examples" || layer == "tools";
  if (!checked || target.find('/') == std::string::npos) { return false; }
  const bool own =
      line.file.rfind("src/" + layer + "/", 0) == 0 && target.rfind(layer + "/", 0) == 0;
  const bool of_tools = layer == "tools" && target.rfind("tools/", 0) == 0;
  // Measured loops call kernels as the engine does.
  const bool of_loops = line.file.rfind("tools/measure/", 0) == 0 &&
                        (target.rfind("kernels/", 0) == 0 || target == "world/host_pool.hpp");
  return !own && !of_tools && !of_loops && target.rfind("tessera/", 0) != 0;
}

TEST(Layers, PublicHeadersNnExamplesAndToolsNeedPublicHeadersOnly) {
  std::size_t of_kernels = 0;
  for (const SourceLine& line : all_lines()) {
    EXPECT_FALSE(includes_private(line)) << line.where();
    const bool in_nn = line.file.rfind("src/nn/", 0) == 0;
    of_kernels += in_nn && quoted_include(line).rfind("tessera/kernels/", 0) == 0 ? 1 : 0;
  }
  EXPECT_GT(of_kernels, 5U) << "nn does not use the public kernels";
}

TEST(Layers, TheTestSeesAPrivateHeader) {
  const auto refused = [](const std::string& file, const std::string& target) {
    return includes_private({file, 1, "#include \"" + target + "\""});
  };
  EXPECT_TRUE(refused("src/nn/linear.cpp", "kernels/table.hpp"));
  EXPECT_TRUE(refused("src/nn/linear.cpp", "base/philox.hpp"));
  EXPECT_TRUE(refused("include/tessera/nn/linear.hpp", "nn/layer.hpp"));
  EXPECT_TRUE(refused("src/c/scopes.cpp", "engine/model/model.hpp"));
  EXPECT_FALSE(refused("src/c/scopes.cpp", "c/handles.hpp"));
  EXPECT_TRUE(refused("tools/checkpoint/merge.cpp", "checkpoint/part.hpp"));
  EXPECT_TRUE(refused("examples/llama_block.hpp", "kernels/matmul/matmul.hpp"));
  EXPECT_FALSE(refused("src/nn/linear.cpp", "nn/layer.hpp"));
  EXPECT_FALSE(refused("src/nn/linear.cpp", "tessera/kernels/matmul.hpp"));
  EXPECT_FALSE(refused("src/engine/step.cpp", "kernels/table.hpp"));
}

/// The folders of the engine, lowest first: each uses earlier ones.
const std::vector<std::string> kEngine = {"rules", "plan", "unit", "model"};

/// The error in an include of the engine; empty if none. Within `model`, declaration, pass and step
/// do not include each other.
std::string engine_fault_of(const SourceLine& line) {
  const auto folder_of = [](const std::string& path) {
    const std::string prefix = "engine/";
    const std::size_t at = path.find(prefix) + prefix.size();
    return path.substr(at, path.find('/', at) - at);
  };
  const std::string target = quoted_include(line);
  if (target.rfind("engine/", 0) != 0) { return ""; }
  const auto from = std::ranges::find(kEngine, folder_of(line.file));
  const auto to = std::ranges::find(kEngine, folder_of(target));
  if (to > from) { return "includes a folder of the engine above its own"; }
  const std::vector<std::string> parts = {"declaration", "pass", "step"};
  const auto part_of = [&](const std::string& path) {
    const std::string name = std::filesystem::path{path}.stem().string();
    return std::ranges::find_if(
        parts, [&](const std::string& part) { return name == part || name.ends_with("_" + part); });
  };
  if (part_of(line.file) == parts.end() || part_of(target) == parts.end()) { return ""; }
  return part_of(line.file) == part_of(target) ? "" : "knows another part of the model";
}

TEST(Layers, PartsOfTheEngineKnowOnlyWhatTheyNeed) {
  std::size_t includes = 0;
  for (const SourceLine& line : lines_under(kRoot, "src/engine")) {
    includes += quoted_include(line).rfind("engine/", 0) == 0 ? 1 : 0;
    EXPECT_EQ(engine_fault_of(line), "") << line.where();
  }
  EXPECT_GT(includes, 50U) << "the test has not found the engine";
}

TEST(Layers, TheTestSeesAPartThatKnowsTooMuch) {
  const auto fault = [](const std::string& file, const std::string& target) {
    return engine_fault_of({"src/engine/" + file, 1, "#include \"engine/" + target + "\""});
  };
  EXPECT_NE(fault("plan/unit_plan.hpp", "unit/live_unit.hpp"), "");
  EXPECT_NE(fault("unit/live_unit.cpp", "model/pass.hpp"), "");
  EXPECT_NE(fault("model/step.cpp", "model/training_pass.hpp"), "");
  EXPECT_NE(fault("model/training_pass.cpp", "model/declaration.hpp"), "");
  EXPECT_EQ(fault("model/training_pass.cpp", "model/pass.hpp"), "");
  EXPECT_EQ(fault("model/step.cpp", "model/optimizer_step.hpp"), "");
  EXPECT_EQ(fault("model/model.cpp", "model/step.hpp"), "");
}

TEST(Layers, PublicHeadersNeedTheStandardLibraryOnly) {
  const std::regex include{R"(^\s*#\s*include\s+<([^>]+)>)"};
  for (const SourceLine& line : lines_under(kRoot, "include")) {
    std::smatch match;
    if (!std::regex_search(line.text, match, include) || layer_of(line.file) == "torch") {
      continue;
    }
    const std::string header = match[1].str();
    const bool of_c = line.file.ends_with(".h") && (header == "stddef.h" || header == "stdint.h");
    EXPECT_TRUE(of_c || header.find_first_of("/.") == std::string::npos) << line.where();
  }
}

// The library builds, installs and runs without libtorch.
TEST(Layers, OnlyTheAdapterIncludesLibtorch) {
  const std::set<std::string> files = files_with(R"(^\s*#\s*include\s+<(torch|ATen|c10)/)");
  EXPECT_GE(files.size(), 5U);
  for (const std::string& file : files) {
    EXPECT_TRUE(layer_of(file) == "torch" || file.rfind("examples/torch/", 0) == 0 ||
                file.rfind("bench/peers/", 0) == 0)
        << file;
  }
}

TEST(Layers, EveryHeaderIsReadOnce) {
  std::set<std::string> headers;
  for (const SourceLine& line : all_lines()) {
    if (line.file.ends_with(".hpp")) { headers.insert(line.file); }
  }
  EXPECT_GT(headers.size(), 100U);
  const std::set<std::string> once = files_with("^#pragma once$");
  for (const std::string& header : headers) { EXPECT_EQ(once.count(header), 1U) << header; }
}

TEST(Layers, TheEnvironmentIsReadInOnePlace) {
  EXPECT_LE(files_with(R"(\bgetenv\s*\()").size(), 1U);
}

// resident and ledger read resident memory, process_limits the size of the address space.
TEST(Layers, ResidentMemoryIsReadInOnePlace) {
  EXPECT_EQ(files_with(R"(/proc/self/(?!exe|cgroup|mountinfo)|getrusage\s*\()"),
            (std::set<std::string>{"src/base/process_limits.cpp", "src/base/resident.cpp",
                                   "src/profile/ledger.cpp"}));
}

// Files are written as a whole (AtomicFile), or as part of a checkpoint, a lock or a log. No code
// opens an existing file for writing. `bench` writes a plain file for comparison with a save,
// `train` renames a damaged checkpoint, and an export names its folder when it is complete.
TEST(Layers, FilesAreMadeInFewPlaces) {
  EXPECT_EQ(files_with(R"(\bO_CREAT\b|\bofstream\b|::rename(at)?\s*\(|fopen\([^;]*"[wa])"),
            (std::set<std::string>{"tools/measure/checkpoints.cpp", "src/base/atomic_file.cpp",
                                   "src/checkpoint/file_system.cpp", "src/nn/hub_export.cpp",
                                   "tools/common/folder_lock.cpp", "tools/train/resume.cpp",
                                   "tools/train/step_log.cpp"}));
}

TEST(Layers, CudaNcclAndMpiStandInFilesNamedAfterThem) {
  const std::string pattern =
      R"(cudaMalloc|<<<|include.*[<"](cuda|cublas|cudnn|nccl|mpi)[A-Za-z_]*\.h)";
  const std::regex named{R"((cuda|cublas|cudnn|nccl|mpi)[a-z_]*\.(cu|cuh|cpp|hpp)$)"};
  for (const std::string& file : files_with(pattern)) {
    EXPECT_TRUE(std::regex_search(file, named)) << file;
  }
}

// Only the control plane has the rules of failure: code that fails a job calls its rank's control
// plane.
TEST(Layers, TheFailureOfAJobIsKeptInTheControlPlane) {
  const std::set<std::string> files = files_with(R"(comm/control/(failure_state|wait_graph)\.hpp)");
  EXPECT_GE(files.size(), 5U);
  for (const std::string& file : files) {
    EXPECT_EQ(file.rfind("src/comm/control/", 0), 0U) << file;
  }
}

TEST(Layers, NothingChoosesACommunicatorByItsName) {
  EXPECT_TRUE(files_with(R"re(name\(\)\s*[=!]=\s*"(local|mpi|nccl|simulated)")re").empty());
}

// Lets .ci/run compile them for one architecture.
TEST(Layers, KernelsAreTheSameForEveryGpu) {
  EXPECT_TRUE(files_with(R"(__CUDA_ARCH__|NV_IF_TARGET)").empty());
}

TEST(Layers, NothingFromTheEngineUpAsksForABackend) {
  const std::regex conditional{R"(^\s*#\s*(if|ifdef|ifndef|elif)\b.*(CUDA|NCCL|MPI))"};
  const std::regex kind{R"(DeviceKind::)"};
  for (const SourceLine& line : all_lines()) {
    const auto from = height(layer_of(line.file));
    if (!from || *from < *height("engine")) { continue; }
    EXPECT_FALSE(std::regex_search(line.text, conditional)) << line.where();
    // The command and the C interface parse device names and set options that depend on them.
    // Custom CUDA kernels need a CUDA device. libtorch has its own device names.
    const std::string layer = layer_of(line.file);
    if (layer == "tools" || layer == "c" || layer == "torch" || line.file.ends_with(".cu")) {
      continue;
    }
    EXPECT_FALSE(std::regex_search(line.text, kind)) << line.where();
  }
}

/// The lines of a file without leading blanks.
std::set<std::string> trimmed_lines(const std::filesystem::path& path) {
  std::set<std::string> lines;
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos) { lines.insert(line.substr(first)); }
  }
  return lines;
}

/// Expects every line of `language` in `page` in one of the programs. Returns the number of lines.
int check_snippets(const char* page, const std::vector<const char*>& programs,
                   const std::string& language = "cpp") {
  std::set<std::string> compiled;
  for (const char* program : programs) { compiled.merge(trimmed_lines(kRoot / program)); }
  std::ifstream file{kRoot / page};
  bool inside = false;
  int checked = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = !inside && line == "```" + language;
      continue;
    }
    const std::size_t first = line.find_first_not_of(' ');
    if (!inside || first == std::string::npos) { continue; }
    EXPECT_EQ(compiled.count(line.substr(first)), 1U) << page << ": " << line;
    ++checked;
  }
  return checked;
}

TEST(Layers, SnippetsOfTheReadmeArePiecesOfCompiledPrograms) {
  EXPECT_GT(
      check_snippets("README.md", {"tests/install/stranger/main.cpp", "examples/wrapped_gpt.cpp"}),
      20);
}

/// Parts that a translation keeps, in order: blocks of code, `code` in the text, link targets,
/// numbers and the levels of headings.
std::vector<std::string> kept_by_a_translation(const char* page) {
  std::vector<std::string> kept;
  std::ifstream file{kRoot / page};
  bool inside = false;
  static const std::regex piece{R"re(`[^`]+`|\]\([^)]+\)|\d[\d.,]*\d|\d)re"};
  for (std::string line; std::getline(file, line);) {
    const bool fence = line.rfind("```", 0) == 0;
    if (fence || inside) {
      kept.push_back(line);
      inside = inside != fence;
    } else if (line.rfind('#', 0) == 0) {
      kept.push_back(line.substr(0, line.find(' ')));
    } else {
      for (std::sregex_iterator at{line.begin(), line.end(), piece}, end; at != end; ++at) {
        kept.push_back(at->str());
      }
    }
  }
  return kept;
}

TEST(Layers, KoreanReadmeHasTheCommandsNumbersAndHeadingsOfTheEnglishOne) {
  std::vector<std::string> english = kept_by_a_translation("README.md");
  std::vector<std::string> korean = kept_by_a_translation("README.ko.md");
  // A translation may reorder words, so the parts are sorted; each page links to the other.
  std::erase(english, "](README.ko.md)");
  std::erase(korean, "](README.md)");
  std::sort(english.begin(), english.end());
  std::sort(korean.begin(), korean.end());
  EXPECT_GT(english.size(), 100U);
  EXPECT_EQ(korean, english);
}

TEST(Layers, SnippetsOfThePagesArePiecesOfCompiledPrograms) {
  EXPECT_GT(check_snippets("docs/memory-ledger.md", {"examples/memory_ledger.cpp"}), 8);
  EXPECT_GT(check_snippets("docs/planning.md", {"examples/hand_written_mlp.cpp"}), 2);
  EXPECT_GT(check_snippets("docs/schedules.md", {"examples/pipeline_bubbles.cpp"}), 6);
  EXPECT_GT(check_snippets("docs/recipes.md",
                           {"examples/recipes.cpp", "tests/engine/unequal_ranks_test.cpp"}),
            50);
  EXPECT_GT(check_snippets("docs/hub.md", {"tests/hub/page_test.cpp"}), 10);
  EXPECT_GT(check_snippets("docs/own-layers.md",
                           {"examples/llama_block.hpp", "examples/llama_model.hpp"}),
            40);
  EXPECT_GT(check_snippets("docs/c.md", {"examples/c_trainer.c"}, "c"), 10);
  const char* options = "tests/misuse/page_snippets_test.cpp";
  EXPECT_GT(check_snippets("docs/optimizers.md", {options, "examples/custom_optimizer.cpp"}), 15);
  EXPECT_GE(check_snippets("docs/moments.md", {options}), 2);
  EXPECT_GE(check_snippets("docs/precision.md", {options}), 1);
  EXPECT_GE(check_snippets("docs/checks.md", {options}), 1);
}

}  // namespace
}  // namespace tessera::test::layers_test
