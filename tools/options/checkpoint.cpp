#include "tools/options/checkpoint.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "tessera/nn/decoder.hpp"

namespace tessera::tools {
namespace {

bool is_periodic(const Settings& settings) {
  return settings.checkpoint_every > 0 || settings.checkpoint_minutes > 0;
}

void require_folder(const Settings& settings) {
  if (!settings.checkpoint.empty()) { return; }
  for (const char* option :
       {"--checkpoint-every", "--checkpoint-minutes", "--checkpoint-keep",
        "--checkpoint-keep-every", "--checkpoint-sync", "--shard-size", "--resume"}) {
    if (settings.has(option)) {
      throw ConfigError(fmt::format("{} needs --checkpoint DIR, the folder of the run", option));
    }
  }
}

void check_resume(const Settings& settings) {
  if (settings.resume && !settings.resume_from.empty()) {
    throw ConfigError(
        "--resume and --resume-from cannot be combined: --resume takes the newest checkpoint of "
        "--checkpoint DIR, --resume-from a checkpoint by its path; give one of them");
  }
  if (settings.convert_moments && !resumes(settings)) {
    throw ConfigError("--resume-moments has no effect without --resume or --resume-from PATH");
  }
  if (resumes(settings) && !settings.init.empty()) {
    throw ConfigError(fmt::format(
        "--init cannot be combined with {}: a checkpoint has the weights; give one of them",
        settings.resume ? "--resume" : "--resume-from"));
  }
}

void check_effect(const Settings& settings) {
  if (settings.checkpoint_sync && !is_periodic(settings)) {
    throw ConfigError(
        "--checkpoint-sync has no effect without --checkpoint-every or --checkpoint-minutes: the "
        "save at the end has no step to run beside");
  }
  if (settings.checkpoint_keep_every > 0 && settings.checkpoint_keep == 0) {
    throw ConfigError(
        "--checkpoint-keep-every has no effect with --checkpoint-keep 0, which keeps all; leave "
        "one of them out");
  }
  if (settings.steps == 0 && is_periodic(settings) && !resumes(settings)) {
    throw ConfigError(
        "--checkpoint-every and --checkpoint-minutes have no effect with --steps 0: the initial "
        "state is saved once");
  }
}

}  // namespace

bool resumes(const Settings& settings) {
  return settings.resume || !settings.resume_from.empty();
}

bool saves_beside_steps(const Settings& settings) {
  return !settings.checkpoint.empty() && is_periodic(settings) && !settings.checkpoint_sync;
}

CheckpointerOptions checkpointer_options(const Settings& settings) {
  CheckpointerOptions options;
  options.folder = settings.checkpoint;
  options.every = settings.checkpoint_every;
  options.minutes = std::chrono::minutes{settings.checkpoint_minutes};
  options.keep = settings.checkpoint_keep;
  options.keep_every = settings.checkpoint_keep_every;
  options.asynchronous = saves_beside_steps(settings);
  options.save.name = nn::gpt2_weight_name;
  options.save.shard_bytes = settings.shard_bytes;
  options.save.command = settings.command_line;
  return options;
}

void check_checkpoint(const Settings& settings) {
  require_folder(settings);
  check_resume(settings);
  check_effect(settings);
}

std::string checkpoint_words(const Settings& settings) {
  if (settings.checkpoint.empty()) { return ""; }
  std::string words = " --checkpoint " + settings.checkpoint;
  if (settings.checkpoint_every > 0) {
    words += fmt::format(" --checkpoint-every {}", settings.checkpoint_every);
  }
  if (settings.checkpoint_minutes > 0) {
    words += fmt::format(" --checkpoint-minutes {}", settings.checkpoint_minutes);
  }
  if (settings.checkpoint_sync) { words += " --checkpoint-sync"; }
  return words;
}

}  // namespace tessera::tools
