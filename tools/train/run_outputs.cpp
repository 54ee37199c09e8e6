#include "tools/train/run_outputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "tessera/base/error.hpp"
#include "tools/common/output_file.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/train/documents.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLog = "--log";
constexpr std::string_view kCheckpoint = "--checkpoint";

std::vector<Output> outputs_of(const Settings& settings) {
  std::vector<Output> outputs = {{kLog, settings.log},
                                 {"--json", settings.json},
                                 {"--report", settings.report},
                                 {"--trace", settings.trace}};
  if (!settings.checkpoint.empty()) {
    outputs.push_back({kCheckpoint, fs::path{settings.checkpoint} / "model.safetensors"});
  }
  std::erase_if(outputs, [](const Output& output) { return output.path.empty(); });
  return outputs;
}

void make_folder(const std::string& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (!failed) { return; }
  throw ConfigError(
      fmt::format("--checkpoint: cannot make the folder {}: {}", folder, failed.message()));
}

/// Whether `path` is, or would be, a file directly in the folder: data is read only from those.
bool lies_in(const fs::path& folder, const fs::path& path) {
  std::error_code ignored;
  const fs::path parent = path.parent_path();
  return fs::is_directory(folder, ignored) &&
         fs::equivalent(folder, parent.empty() ? fs::path{"."} : parent, ignored);
}

// A file that a run writes into a folder of data would be data of the next run.
void refuse_inputs(const Settings& settings, const Output& output) {
  for (const std::string& input :
       {settings.data, settings.tokens, settings.init, settings.eval_data, settings.prompt_file,
        packs_by_token(settings) ? std::string{} : settings.pack, settings.loss_mask,
        settings.eval_pack, settings.eval_loss_mask}) {
    if (input.empty()) { continue; }
    std::error_code ignored;
    if (fs::equivalent(input, output.path, ignored)) {
      throw ConfigError(fmt::format("{}: {} is read by this run; write to another file",
                                    output.option, output.path.string()));
    }
    if (lies_in(input, output.path)) {
      throw ConfigError(
          fmt::format("{}: {} lies in {}, all of whose files this run reads; write "
                      "to another folder",
                      output.option, output.path.string(), input));
    }
  }
}

void require_place(const Output& output) {
  if (output.option == kLog) { return; }  // errors show when it is opened
  output.option == kCheckpoint ? require_file(output.option, output.path)
                               : require_writable(output.option, output.path);
}

void lock_checkpoint(const std::string& folder, RunOutputs& opened) {
  opened.checkpoint.emplace(folder);
  if (opened.checkpoint->holds()) { return; }
  tell(
      fmt::format("note: --checkpoint: {} is on a file system without locks; make sure that no "
                  "other run writes to it\n",
                  folder));
}

}  // namespace

std::shared_ptr<RunOutputs> open_outputs(const Settings& settings) {
  if (settings.steps == 0 && settings.records()) {
    throw ConfigError(
        "--report and --trace have no effect with --steps 0: they show a step; leave them out");
  }
  auto opened = std::make_shared<RunOutputs>();
  const std::vector<Output> outputs = outputs_of(settings);
  for (const Output& output : outputs) { refuse_inputs(settings, output); }
  require_apart(outputs);
  if (!settings.checkpoint.empty()) {
    make_folder(settings.checkpoint);
    lock_checkpoint(settings.checkpoint, *opened);
  }
  for (const Output& output : outputs) { require_place(output); }
  if (!settings.log.empty()) { opened->log.emplace(settings.log); }
  return opened;
}

}  // namespace tessera::tools
