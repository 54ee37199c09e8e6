#include "tools/options/mesh.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "tessera/base/error.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

constexpr std::array<std::pair<std::string_view, PipeSchedule>, 4> kSchedules = {
    {{"gpipe", PipeSchedule::gpipe},
     {"1f1b", PipeSchedule::one_forward_one_backward},
     {"interleaved", PipeSchedule::interleaved},
     {"zero-bubble", PipeSchedule::zero_bubble}}};

void require_dimension(const Settings& settings, const char* option, const char* dimension) {
  if (!settings.changes(option) || ranks_along(settings, dimension) > 1) { return; }
  throw ConfigError(
      fmt::format("{} has no effect, because --mesh has one rank along {}; leave it out, or give a "
                  "--mesh such as {}=2,shard=4",
                  option, dimension, dimension));
}

}  // namespace

std::vector<MeshDim> parse_mesh(const std::string& text) {
  std::vector<MeshDim> mesh;
  for (const std::string& entry : parse_list(text)) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) {
      throw ConfigError(
          fmt::format("'{}' has no size; give NAME=SIZE, such as replicate=2,shard=4", entry));
    }
    using Limits = std::numeric_limits<int>;
    const auto size = parse_whole(entry.substr(equals + 1), 0, Limits::max());
    mesh.push_back({entry.substr(0, equals), static_cast<int>(size)});
  }
  return mesh;
}

std::string mesh_words(const std::vector<MeshDim>& mesh) {
  std::vector<std::string> dims;
  for (const auto& [name, size] : mesh) { dims.push_back(fmt::format("{}={}", name, size)); }
  return fmt::format("{}", fmt::join(dims, ","));
}

PipeSchedule parse_pipe_schedule(const std::string& text) {
  for (const auto& [name, schedule] : kSchedules) {
    if (name == text) { return schedule; }
  }
  throw ConfigError(
      fmt::format("'{}' is unknown; use gpipe, 1f1b, interleaved or zero-bubble", text));
}

std::string_view to_string(PipeSchedule schedule) noexcept {
  return kSchedules[static_cast<std::size_t>(schedule)].first;
}

int ranks_along(const Settings& settings, const char* dimension) {
  return settings.sharded.mesh.empty() ? 1 : MeshShape{settings.sharded.mesh}.size(dimension);
}

int data_ranks(const Settings& settings) {
  return settings.sharded.mesh.empty() ? settings.ranks
                                       : MeshShape{settings.sharded.mesh}.data_ranks();
}

std::string_view data_rank_word(const Settings& settings) {
  return ranks_along(settings, "tensor") * ranks_along(settings, "pipe") > 1 ? "data rank" : "rank";
}

int data_index(const Settings& settings, int rank) {
  return settings.sharded.mesh.empty() ? rank : MeshShape{settings.sharded.mesh}.data_index(rank);
}

std::vector<PlaceRange> places_of(const Settings& settings, const std::vector<int>& ranks) {
  std::vector<PlaceRange> places;
  for (const char* const dimension : {"pipe", "tensor"}) {
    if (ranks_along(settings, dimension) == 1) { continue; }
    const MeshGroups along = MeshShape{settings.sharded.mesh}.along({dimension});
    PlaceRange& range = places.emplace_back(PlaceRange{dimension, along.size(), 0});
    for (const int rank : ranks) {
      range.first = std::min(range.first, along.index_of(rank));
      range.last = std::max(range.last, along.index_of(rank));
    }
  }
  return places;
}

std::vector<int> pipe_ranks(const Settings& settings) {
  return ranks_along(settings, "pipe") == 1
             ? std::vector<int>{}
             : MeshShape{settings.sharded.mesh}.along({"pipe"}).members(0);
}

int stages_of(const Settings& settings) {
  const bool interleaved = settings.pipe_schedule == PipeSchedule::interleaved;
  return ranks_along(settings, "pipe") * (interleaved ? settings.chunks : 1);
}

std::function<pipeline::Schedule(int ranks, int micro_batches)> schedule_maker(
    const Settings& settings) {
  switch (settings.pipe_schedule) {
    case PipeSchedule::gpipe:
      return pipeline::gpipe;
    case PipeSchedule::interleaved:
      return [chunks = settings.chunks](int ranks, int micro_batches) {
        return pipeline::interleaved(ranks, chunks, micro_batches);
      };
    case PipeSchedule::zero_bubble:
      return pipeline::zero_bubble;
    case PipeSchedule::one_forward_one_backward:
      break;
  }
  return pipeline::one_forward_one_backward;
}

pipeline::Schedule schedule_of(const Settings& settings) {
  return schedule_maker(settings)(ranks_along(settings, "pipe"), settings.sharded.accumulate);
}

void check_mesh_options(const Settings& settings) {
  require_dimension(settings, "--schedule", "pipe");
  require_dimension(settings, "--chunks", "pipe");
  require_dimension(settings, "--sequence-parallel", "tensor");
  require_dimension(settings, "--tensor-slices", "tensor");
  const bool interleaved = settings.pipe_schedule == PipeSchedule::interleaved;
  if (settings.has("--chunks") && !interleaved) {
    throw ConfigError(fmt::format(
        "--chunks has no effect on --schedule {}, whose ranks have one stage each; leave it out, "
        "or use --schedule interleaved",
        to_string(settings.pipe_schedule)));
  }
  if (ranks_along(settings, "pipe") == 1) { return; }
  if (settings.boundaries == nn::Boundaries::host) {
    throw ConfigError(
        "--offload activations cannot be combined with several ranks along pipe: the pipeline "
        "keeps the inputs of stages on the device; leave one of them out");
  }
  (void)schedule_of(settings);
}

std::string describe_parallel(const Settings& settings) {
  std::string text;
  if (ranks_along(settings, "pipe") > 1) {
    text += fmt::format(", schedule {}", to_string(settings.pipe_schedule));
    if (settings.pipe_schedule == PipeSchedule::interleaved) {
      text += fmt::format(" of {} stages a rank", settings.chunks);
    }
  }
  if (settings.sequence_parallel) { text += ", sequence parallel"; }
  if (settings.tensor_slices > 1) {
    text += fmt::format(", {} slices a product", settings.tensor_slices);
  }
  return text;
}

std::string parallel_words(const Settings& settings) {
  if (settings.sharded.mesh.empty()) { return ""; }
  std::string words = " --mesh " + mesh_words(settings.sharded.mesh);
  if (ranks_along(settings, "pipe") > 1 &&
      settings.pipe_schedule != PipeSchedule::one_forward_one_backward) {
    words += fmt::format(" --schedule {}", to_string(settings.pipe_schedule));
  }
  if (settings.pipe_schedule == PipeSchedule::interleaved) {
    words += fmt::format(" --chunks {}", settings.chunks);
  }
  if (settings.sequence_parallel) { words += " --sequence-parallel"; }
  if (settings.tensor_slices > 1) {
    words += fmt::format(" --tensor-slices {}", settings.tensor_slices);
  }
  return words;
}

}  // namespace tessera::tools
