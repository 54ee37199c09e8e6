#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/pipeline/schedule.hpp"
#include "tessera/world/mesh_shape.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The dimensions of a text such as "pipe=2,shard=4". The library checks names and sizes.
/// ConfigError for a text of another form.
[[nodiscard]] std::vector<MeshDim> parse_mesh(const std::string& text);
/// The inverse of parse_mesh.
[[nodiscard]] std::string mesh_words(const std::vector<MeshDim>& mesh);

/// "gpipe", "1f1b", "interleaved", "zero-bubble". ConfigError for another one.
[[nodiscard]] PipeSchedule parse_pipe_schedule(const std::string& text);
[[nodiscard]] std::string_view to_string(PipeSchedule schedule) noexcept;

/// The number of ranks along a dimension of --mesh; 1 without it.
[[nodiscard]] int ranks_along(const Settings& settings, const char* dimension);
/// The number of ranks that compute with different data, of settings with settled ranks.
[[nodiscard]] int data_ranks(const Settings& settings);

/// "data rank" where several ranks compute with the same data, else "rank".
[[nodiscard]] std::string_view data_rank_word(const Settings& settings);
/// The index of `rank` among the data ranks, from 0.
[[nodiscard]] int data_index(const Settings& settings, int rank);

/// The first and the last place of a group of ranks along a dimension of --mesh.
struct PlaceRange {
  std::string dimension;
  int first = 0;
  int last = 0;
};
/// The places of `ranks`, one or more, along `pipe` and `tensor`, for dimensions with several
/// ranks.
[[nodiscard]] std::vector<PlaceRange> places_of(const Settings& settings,
                                                const std::vector<int>& ranks);

/// The first rank of each place along `pipe`; empty without `pipe`.
[[nodiscard]] std::vector<int> pipe_ranks(const Settings& settings);

/// The number of stages that the schedule divides a model into; 1 without `pipe`.
[[nodiscard]] int stages_of(const Settings& settings);

/// The schedule of --schedule, for any number of ranks along `pipe` and micro-batches.
[[nodiscard]] std::function<pipeline::Schedule(int ranks, int micro_batches)> schedule_maker(
    const Settings& settings);

/// What each rank along `pipe` does in a step of `settings`. ConfigError if the schedule cannot
/// have this number of micro-batches.
[[nodiscard]] pipeline::Schedule schedule_of(const Settings& settings);

/// ConfigError for a typed option of pipelines or tensor parallelism that has no effect on the
/// mesh, and for numbers that contradict each other.
void check_mesh_options(const Settings& settings);

/// ", schedule 1f1b", ", schedule interleaved of 2 stages a rank, sequence parallel": those that
/// the run has; empty without any.
[[nodiscard]] std::string describe_parallel(const Settings& settings);
/// " --mesh pipe=2,shard=4 --schedule gpipe": those that were typed or chosen; empty without any.
[[nodiscard]] std::string parallel_words(const Settings& settings);

}  // namespace tessera::tools
