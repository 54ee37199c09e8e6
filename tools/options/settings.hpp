#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/data/token_source.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/decoder_config.hpp"
#include "tessera/nn/hub.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/world/world_options.hpp"

namespace tessera::tools {

/// A GPT and its name in tables and files.
struct NamedModel {
  std::string name;  ///< a preset's, a folder's path, or "custom"
  nn::DecoderConfig config = {};
};

/// How the ranks of a run communicate.
enum class CommChoice : std::uint8_t {
  automatic,  ///< in a launcher's job mpi (on a CPU) or nccl (on CUDA), else local
  local,      ///< ranks are threads of this process
  mpi,        ///< this process is one rank of the launcher's job
  nccl,       ///< the same, on CUDA devices
};

/// The rules that --optimizer knows.
enum class UpdateRule : std::uint8_t { adamw, adam, sgd, lion };

/// The schedules that --schedule knows (pipeline/schedule.hpp).
enum class PipeSchedule : std::uint8_t {
  gpipe,
  one_forward_one_backward,
  interleaved,
  zero_bubble
};

/// Steps before the first graph of a run with --graph. They learn the order of units and create
/// what later steps reuse.
inline constexpr std::int64_t kStepsBeforeGraphs = 2;

/// The user's request, one member per option. The defaults are in the table of options
/// (option_table.hpp), not here; members without an option in a command have train's default.
struct Settings {
  // the library's options; library_options.hpp fits them to a strategy
  WorldOptions world;
  ModelOptions sharded;  ///< its `shard_group` is hybrid's, and its `mesh` every strategy's
  OptimizerOptions update;
  // model
  std::optional<std::string> model;
  std::optional<nn::HubConfig> hub;  ///< if `model` is a folder of the hub: its config.json
  std::optional<std::int64_t> layers, hidden, heads, vocab, seq;
  std::optional<std::int64_t> params;  ///< parameters of a stack of equal units, instead of a GPT
  std::optional<std::int64_t> aspect;  ///< of a family: width per layer
  std::string init;
  // data
  std::string data;
  std::string tokens;
  TokenFormat token_format = TokenFormat::detect;
  std::string pack;       ///< the token that ends each document, or the file of their positions
  std::string loss_mask;  ///< the file that says which tokens the loss counts
  // parallel
  int ranks = 0;                 ///< 0: the size of the job, or one
  std::vector<int> rank_counts;  ///< several counts, for scale
  CommChoice comm{};
  bool graph = false;  ///< steps from kStepsBeforeGraphs on are launched as CUDA graphs
  std::vector<Strategy> strategies;
  PipeSchedule pipe_schedule{};
  int chunks = 0;  ///< stages per rank
  bool sequence_parallel = false;
  int tensor_slices = 0;  ///< of a product, which overlap with its communication
  // training
  std::int64_t steps = 0;
  std::int64_t batch = 0;
  std::optional<DType> norm_dtype;  ///< of the norms' parameters, if not `sharded.compute`
  nn::Recompute recompute;
  std::int64_t head_rows = 0;  ///< of logits at a time; 0: all
  float dropout = 0;
  nn::Boundaries boundaries{};
  UpdateRule optimizer{};
  float momentum = 0;
  float lr = 0;
  std::optional<float> min_lr;
  std::int64_t warmup = 0;
  ScheduleShape lr_schedule{};
  float beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::string eval_data;  ///< held-out data whose loss is measured at intervals
  std::int64_t eval_every = 0;
  std::int64_t eval_batches = 0;
  std::string eval_pack;       ///< as `pack`, if that is a file
  std::string eval_loss_mask;  ///< as `loss_mask`
  // sampling
  std::string prompt;
  std::string prompt_file;
  std::vector<std::int32_t> prompt_tokens;
  std::int64_t count = 0;  ///< tokens to draw per sample
  std::int64_t samples = 0;
  float temperature = 0;
  std::int64_t top_k = 0;
  float top_p = 1;
  // output
  std::string checkpoint;
  std::int64_t checkpoint_every = 0;    ///< steps between saves; 0: none by steps
  std::int64_t checkpoint_minutes = 0;  ///< minutes between saves; 0: none by time
  int checkpoint_keep = 0;              ///< number of newest checkpoints to keep; 0: all
  std::int64_t checkpoint_keep_every =
      0;  ///< checkpoints of multiples of these steps are kept as well; 0: none
  bool checkpoint_sync = false;  ///< whether steps wait for the files
  std::size_t shard_bytes = 0;   ///< the most bytes of tensors in a file
  bool resume = false;           ///< whether to start from the newest of `checkpoint`
  std::string resume_from;       ///< the folder of a step, or of a run
  bool convert_moments =
      false;  ///< whether to convert moments of another format than the checkpoint's
  std::string log;
  std::string json;
  std::string report;
  std::string trace;
  std::string machine;       ///< path of the profile of the machine whose time is planned
  std::string config_file;   ///< path of a file of options
  std::string write_config;  ///< path of the file of options to write instead of running
  std::string command_line;  ///< the command line, for reports
  bool measure = false;
  bool support = false;

  /// The names of the options that were typed, in the order of the table.
  std::vector<std::string_view> given;
  /// The names among `given` whose typed value is not their default.
  std::vector<std::string_view> changed;
  /// The command and its options, in the order of the table, each with its typed or default value;
  /// empty if it has neither.
  std::vector<std::pair<std::string, std::string>> effective;

  /// Whether `option` was typed.
  [[nodiscard]] bool has(std::string_view option) const;
  /// Whether `option` was typed with another value than its default.
  [[nodiscard]] bool changes(std::string_view option) const;
  /// Whether a sequence holds several documents.
  [[nodiscard]] bool packs() const noexcept { return !pack.empty(); }
  /// Whether the loss leaves tokens out.
  [[nodiscard]] bool masks() const noexcept { return packs() || !loss_mask.empty(); }
  /// Whether any step is recorded.
  [[nodiscard]] bool records() const noexcept { return !report.empty() || !trace.empty(); }
  /// The model that `--model` names, or the preset `otherwise` without it: a preset, or the model
  /// of a folder of the hub. ConfigError if there is none.
  [[nodiscard]] NamedModel published_model(std::string_view otherwise) const;
  /// The requested model: `--model`, perhaps with shorter sequences, or gpt-nano with the given
  /// sizes. ConfigError if both were given, if the name is unknown, or if the sizes contradict each
  /// other.
  [[nodiscard]] NamedModel named_model() const;
  /// ConfigError if the final rate would exceed the initial one.
  [[nodiscard]] Schedule schedule() const;
  [[nodiscard]] std::int64_t tokens_per_step() const;
};

/// "local", "mpi" or "nccl", for settled settings.
[[nodiscard]] std::string_view comm_name(const Settings& settings);
/// " (mpi)", " (cuda, nccl)": where ranks run; empty for threads on the CPU.
[[nodiscard]] std::string describe_ranks(const Settings& settings);
/// "none", "optimizer", "activations" or "optimizer,activations", as for --offload.
[[nodiscard]] std::string_view offload_name(const Settings& settings);
/// " --offload optimizer --offload-keep 0.25": empty if nothing is offloaded.
[[nodiscard]] std::string offload_words(const Settings& settings);
/// ", recompute block, dropout 0.1": those that were requested; empty without any.
[[nodiscard]] std::string describe_forward(const Settings& settings);
/// "fp32", "bf16 (gradients fp32, reduced in bf16)".
[[nodiscard]] std::string describe_precision(const Settings& settings);
/// ConfigError for a given reduce dtype that has no effect.
void check_reduce_dtype(const Settings& settings);
/// ConfigError if --host-threads was typed and the host updates nothing.
void check_host_threads(const Settings& settings);
/// ConfigError for a communicator that ranks on the device cannot have.
void check_device(const Settings& settings);
/// ConfigError for requests that no run can satisfy and the library does not refuse: more ranks in
/// one process than it can have, a communicator that the device cannot have, a reduce dtype without
/// effect.
void check_planned(const Settings& settings);

}  // namespace tessera::tools
