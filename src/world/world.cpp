#include "tessera/world/world.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/local/local_communicator.hpp"
#include "comm/local/local_device_communicator.hpp"
#include "device/cpu/instructions.hpp"
#include "device/cpu/parallel.hpp"
#include "device/cuda_module.hpp"
#include "device/stream_state.hpp"
#include "kernels/support/workspace.hpp"
#include "kernels/table.hpp"
#include "kernels/work/logged_table.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/product_library.hpp"
#include "world/host_cores.hpp"
#include "world/nccl_options.hpp"
#include "world/world_state.hpp"

namespace tessera {
namespace {

OwnedStream make_compute_stream(Device& device, int rank, ComputeStream kind) {
  if (kind == ComputeStream::caller || !device.computes()) { return device.make_compute_stream(); }
  OwnedStream stream = device.make_side_stream(fmt::format("compute r{}", rank));
  device::lend_threads(device, stream.get());
  return stream;
}

/// Sets a flag while it lives.
class FlagWhile {
 public:
  explicit FlagWhile(bool& flag) noexcept : flag_{flag} { flag_ = true; }
  FlagWhile(const FlagWhile&) = delete;
  FlagWhile& operator=(const FlagWhile&) = delete;
  ~FlagWhile() { flag_ = false; }

 private:
  bool& flag_;
};

/// A device that computes nothing logs all work, if any: see simulate_rank.
const kernels::Table& kernels_for(const Device& device, DeviceKind kind, bool logs) {
  return logs || !device.computes() ? kernels::logged_table(kind) : kernels::table_of(kind);
}

void log_to(trace::WorkLog* log, Stream stream, const char* name) {
  if (log != nullptr) { stream.state()->log_to(log, log->add_stream(name)); }
}

void check_work_log(const WorldOptions& options) {
  if (!options.log_work) { return; }
  if (options.device != DeviceKind::cpu ||
      options.testing.compute_stream != ComputeStream::caller) {
    throw ConfigError{
        "work can only be logged on CPUs with the caller's compute stream, where a kernel has run "
        "when it returns; leave log_work off, or simulate a rank"};
  }
}

/// Its error stays in the stream; only its end matters here.
void drain(Stream stream) noexcept {
  try {
    stream.wait();
  } catch (const std::exception&) {  // the stream keeps it
  }
}

}  // namespace

world::WorldState::WorldState(int rank_, int size_, const WorldOptions& options_,
                              std::unique_ptr<Device> device_, DeviceKind kind_,
                              std::unique_ptr<trace::WorkLog> work_log_)
    : rank{rank_},
      size{size_},
      kind{kind_},
      options{options_},
      host_threads{options_.threads},
      recorder{options.trace ? std::make_unique<trace::Recorder>() : nullptr},
      work_log{std::move(work_log_)},
      counted{std::make_shared<MemoryTracker>(recorder.get(), options.budget_bytes)},
      host_counted{std::make_shared<MemoryTracker>()},
      memory{*counted},
      host_memory{*host_counted},
      device{std::move(device_)},
      kernels{kernels_for(*device, kind, options.log_work)},
      kernel_workspace{*device, memory, Category::workspace, kernels::stream_workspace_bytes(kind),
                       "kernels' workspace"} {
  if (recorder) { recorder->keep_last(options.trace_steps); }
  if (options.log_work && !work_log) { work_log = std::make_unique<trace::WorkLog>(); }
}

bool world::WorldState::keeps(const Communicator& communicator) const noexcept {
  return &communicator == gather.get() || &communicator == reduce.get() ||
         std::ranges::any_of(splits, [&](const world::SplitChannel& split) {
           return &communicator == split.communicator.get();
         });
}

World::World(std::unique_ptr<world::WorldState> state) : state_{std::move(state)} {}
World::~World() {
  quiesce();
  state_->life->ended = true;
  state_->memory.forget_recorder();
  while (!state_->splits.empty()) { state_->splits.pop_back(); }
}

int World::rank() const noexcept {
  return state_->rank;
}
int World::size() const noexcept {
  return state_->size;
}
const WorldOptions& World::options() const noexcept {
  return state_->options;
}
const ProcessStart& World::process() const noexcept {
  return state_->process;
}
Device& World::device() noexcept {
  return *state_->device;
}
Stream World::compute_stream() const noexcept {
  return state_->compute_stream.get();
}
Channel World::gather_channel() noexcept {
  return {*state_->gather, state_->gather_stream.get()};
}
Channel World::reduce_channel() noexcept {
  return {*state_->reduce, state_->reduce_stream.get()};
}
Channel World::split(const Channel& whole, const GroupOf& group_of, const std::string& name) {
  expects(state_->keeps(whole.communicator),
          "split: the world can only split its own channels and those split from them, which it "
          "keeps until it ends; split another communicator with its own split");
  RankGroup group = whole.communicator.agree_on_group(group_of, name);
  std::vector<world::SplitChannel>& splits = state_->splits;
  const auto known = std::ranges::find_if(splits, [&](const world::SplitChannel& split) {
    return split.whole == &whole.communicator && split.group.code == group.code &&
           split.name.empty();
  });
  if (known != splits.end()) { return {*known->communicator, whole.stream}; }
  expects(!state_->in_graph,
          "split: a graph is being captured and cannot hold a new communicator; split before the "
          "capture");
  std::unique_ptr<Communicator> made = whole.communicator.do_split(group);
  splits.push_back({&whole.communicator, std::move(group), std::move(made), {}, {}});
  return {*splits.back().communicator, whole.stream};
}
Channel World::split_beside(const GroupOf& group_of, const std::string& name) {
  Communicator& whole = *state_->gather;
  RankGroup group = whole.agree_on_group(group_of, name);
  std::vector<world::SplitChannel>& splits = state_->splits;
  const auto known = std::ranges::find_if(splits, [&](const world::SplitChannel& split) {
    return split.group.code == group.code && split.name == name;
  });
  if (known != splits.end()) { return {*known->communicator, known->stream.get()}; }
  expects(!state_->in_graph,
          "split: a graph is being captured and cannot hold a new communicator; split before the "
          "capture");
  std::unique_ptr<Communicator> made = whole.do_split(group);
  made->do_run_beside();
  OwnedStream stream = state_->device->make_channel_stream(
      fmt::format("{} r{}", name, state_->rank), state_->options.tuning.channel_priority);
  if (!state_->device->computes()) { log_to(state_->work_log.get(), stream.get(), name.c_str()); }
  splits.push_back({&whole, std::move(group), std::move(made), name, std::move(stream)});
  return {*splits.back().communicator, splits.back().stream.get()};
}
MemoryTracker& World::memory() noexcept {
  return state_->memory;
}
trace::Recorder* World::recorder() noexcept {
  return state_->recorder.get();
}
trace::WorkLog* World::work_log() noexcept {
  return state_->work_log.get();
}
void World::count(const trace::KernelWork& work) {
  if (state_->work_log) {
    state_->work_log->kernel(state_->compute_stream.get().state()->log_number(), work);
  }
}
bool World::computes() const noexcept {
  return state_->device->computes();
}

Buffer World::allocate(Category category, std::size_t bytes, std::string name, BufferUse use) {
  return {*state_->device, state_->memory, category, bytes, std::move(name), use};
}

double World::sum(double value) {
  std::string bits(sizeof value, '\0');
  std::memcpy(bits.data(), &value, sizeof value);
  const std::vector<std::string> all = exchange(bits);
  double total = 0.0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    double term = 0.0;
    expects(all[rank].size() == sizeof term,
            "sum: another rank made another call; every rank must make the same collective calls "
            "in the same order");
    std::memcpy(&term, all[rank].data(), sizeof term);
    total = rank == 0 ? term : total + term;
  }
  return total;
}

void World::barrier() {
  (void)exchange({});
}

std::vector<std::string> World::exchange(const std::string& text) {
  return state_->gather->exchange(text);
}

void World::abort(std::string_view reason) noexcept {
  state_->gather->abort(reason);
  state_->reduce->abort(reason);
}

void World::quiesce() noexcept {
  if (std::uncaught_exceptions() > state_->uncaught) {
    state_->gather->withdraw();
    state_->reduce->withdraw();
    for (const world::SplitChannel& split : state_->splits) { split.communicator->withdraw(); }
  }
  drain(state_->gather_stream.get());
  drain(state_->reduce_stream.get());
  for (const world::SplitChannel& split : state_->splits) {
    if (split.stream.get()) { drain(split.stream.get()); }
  }
  drain(state_->compute_stream.get());
  for (const world::SideStream* side : state_->side_streams()) {
    if (side->stream.get()) { drain(side->stream.get()); }
  }
}

void World::run_as_graph(const std::function<void()>& work) {
  world::WorldState& state = *state_;
  if (state.size > 1 && state.gather->shares_memory()) {
    throw ConfigError{fmt::format(
        "a step of {} ranks that are threads cannot be one CUDA graph, because each rank's work "
        "waits for the others'; use one rank, ranks that are processes, or no graph",
        state.size)};
  }
  if (!state.graph) { state.graph = state.device->make_graph(); }
  std::vector<Stream> others{state.gather_stream.get(), state.reduce_stream.get()};
  for (const world::SplitChannel& split : state.splits) {
    if (split.stream.get()) { others.push_back(split.stream.get()); }
  }
  for (const world::SideStream* side : state.side_streams()) {
    if (side->stream.get()) { others.push_back(side->stream.get()); }
  }
  state.graph->run(state.compute_stream.get(), others, [&] {
    const FlagWhile captured{state.in_graph};
    work();
  });
}

bool world::WorldAccess::in_graph(const World& world) noexcept {
  return state(world).in_graph;
}

std::unique_ptr<Device> world::WorldFactory::make_device(const WorldOptions& options,
                                                         int local_rank) {
  check_work_log(options);
  if (options.device == DeviceKind::cpu) {
    (void)product_library();  // oneDNN takes TESSERA_CPU's limit now or never
    return make_cpu_device(
        {.threads = options.threads, .pool_name = fmt::format("pool r{}", local_rank)});
  }
  (void)device::instructions();  // refuses a wrong TESSERA_CPU, as a CPU device does
  const auto devices = static_cast<int>(cuda_machine().devices.size());
  // Without a device, making the device reports what is missing.
  const int mine = options.cuda_ordinal.value_or(devices == 0 ? 0 : local_rank % devices);
  std::vector<int> peers;
  for (int other = 0; !options.cuda_ordinal && other < devices; ++other) {
    if (other != mine) { peers.push_back(other); }
  }
  return make_cuda_device({.ordinal = mine, .peers = peers});
}

std::shared_ptr<comm::LocalRanks> world::WorldFactory::make_local_ranks(
    int ranks, const WorldOptions& options) {
  world::refuse_nccl_options(options.nccl);
  return std::make_shared<comm::LocalRanks>(
      ranks, std::vector<std::string>{"gather", "reduce"}, options.deadline,
      options.trace ? comm::CountTraffic::yes : comm::CountTraffic::no);
}

World world::WorldFactory::make_local(std::shared_ptr<comm::LocalRanks> ranks, int rank,
                                      const WorldOptions& options, const ProcessStart& process) {
  auto state = std::make_unique<world::WorldState>(rank, ranks->size(), options,
                                                   make_device(options, rank), options.device);
  state->process = process;
  if (options.device == DeviceKind::cuda) {
    const std::vector<world::HostCores> all(static_cast<std::size_t>(ranks->size()),
                                            world::own_cores());
    state->host_threads = host_threads(options.host_threads, all, rank);
  }
  const auto make = [&](std::uint64_t number, const char* stream) -> std::unique_ptr<Communicator> {
    const comm::Instruments instruments{state->recorder.get(), options.testing.delays, stream,
                                        number};
    const std::shared_ptr<comm::LocalChannel>& channel = ranks->channel(number);
    if (options.device == DeviceKind::cpu) {
      return std::make_unique<comm::LocalCommunicator>(ranks, channel, rank, instruments);
    }
    return std::make_unique<comm::LocalDeviceCommunicator>(ranks, channel, rank, instruments,
                                                           *state->device, state->kernels);
  };
  state->names = &ranks->plane(rank).names();
  state->gather = make(comm::kGatherNumber, "gather");
  state->reduce = make(comm::kReduceNumber, "reduce");
  make_streams(*state);
  return World{std::move(state)};
}

/// Reads the recorded products, and returns how many multiprocessors products may use: 0 for all. A
/// device that only counts computes no products.
int world::WorldFactory::choose_products(world::WorldState& state) {
  const WorldOptions& options = state.options;
  const bool spares = options.tuning.spared_multiprocessors > 0;
  if (!state.device->computes() || (options.products.empty() && !spares)) { return 0; }
  kernels::ProductMachine machine;
  device::CudaModule::get().function<kernels::FindProductMachine>("tessera_cublaslt_machine")(
      state.compute_stream.get(), machine);
  kernels::spare_multiprocessors(machine, options.tuning.spared_multiprocessors);
  if (!options.products.empty()) {
    state.products = kernels::read_product_choices(options.products, machine);
  }
  return spares ? machine.multiprocessors : 0;
}

bool world::WorldAccess::computes_behind_host(const World& world) noexcept {
  return state(world).kind == DeviceKind::cuda;
}

std::string world::WorldAccess::describe_kernels(const World& world) {
  const auto& [products, options] = std::tie(state(world).products, state(world).options);
  std::vector<std::string> lines;
  lines.reserve(3);  // GCC 12 falsely reports a write beyond the end where it grows
  if (products) { lines.push_back(kernels::describe(*products)); }
  if (options.tuning.spared_multiprocessors > 0) {
    lines.push_back(
        fmt::format("tuning.spared_multiprocessors {}", options.tuning.spared_multiprocessors));
  }
  if (options.tuning.attention_workspace_bytes != WorldOptions{}.tuning.attention_workspace_bytes) {
    lines.push_back(fmt::format("tuning.attention_workspace_bytes {}",
                                options.tuning.attention_workspace_bytes));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

void world::WorldFactory::make_streams(world::WorldState& state) {
  state.compute_stream =
      make_compute_stream(*state.device, state.rank, state.options.testing.compute_stream);
  state.compute_stream.get().state()->lend(
      {state.kernel_workspace.data(), state.kernel_workspace.bytes()});
  const int multiprocessors = choose_products(state);
  state.compute_stream.get().state()->compute_with(
      {&state.kernels, state.options.threads,
       state.options.nondeterministic_attention ? device::SumOrder::any : device::SumOrder::fixed,
       state.options.tuning.attention_workspace_bytes, state.products ? &*state.products : nullptr,
       multiprocessors});
  const auto make_channel = [&](const char* name) {
    return state.device->make_channel_stream(fmt::format("{} r{}", name, state.rank),
                                             state.options.tuning.channel_priority);
  };
  state.gather_stream = make_channel("gather");
  state.reduce_stream = make_channel("reduce");
  log_to(state.work_log.get(), state.compute_stream.get(), "compute");
  if (state.device->computes()) { return; }  // the work of other streams there is no kernel's
  log_to(state.work_log.get(), state.gather_stream.get(), "gather");
  log_to(state.work_log.get(), state.reduce_stream.get(), "reduce");
}

void world::WorldFactory::rethrow_mistake(const World& world) {
  if (const std::exception_ptr& mistake = world.state_->life->mistake) {
    std::rethrow_exception(mistake);
  }
}

void world::WorldFactory::finish(World& world) {
  rethrow_mistake(world);
  world.compute_stream().wait();
  world.gather_channel().stream.wait();
  world.reduce_channel().stream.wait();
  for (const world::SplitChannel& split : world.state_->splits) {
    if (split.stream.get()) { split.stream.get().wait(); }
  }
  for (const world::SideStream* side : world.state_->side_streams()) {
    if (side->stream.get()) { side->stream.get().wait(); }
  }
}

}  // namespace tessera
