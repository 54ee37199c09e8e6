// A rank of a job that fails in the way named by the first argument. Tests start it with mpirun, or
// as a job of CUDA devices where a module for them is named, and check how the job ends. It reports
// errors like a user's program.
//
//   failing_rank WAY DEADLINE_MS
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "device/cuda_module.hpp"
#include "tessera/base/error.hpp"
#include "tessera/engine/init.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/run.hpp"

namespace {

using namespace tessera;

constexpr int kCulprit = 1;

/// Elements on the rank's device, all 1. No work may be in flight at construction or destruction.
class Elements {
 public:
  Elements(World& world, std::int64_t count)
      : world_{world},
        buffer_{world.allocate(Category::gather, static_cast<std::size_t>(count) * sizeof(float),
                               "elements")},
        count_{count} {
    const std::vector<float> ones(static_cast<std::size_t>(count), 1.0F);
    world.device().copy_in(buffer_.data(), ones.data(), ones.size() * sizeof(float),
                           world.compute_stream());
    world.compute_stream().wait();
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  ~Elements() { world_.quiesce(); }

  [[nodiscard]] View view() noexcept { return {buffer_.data(), count_, DType::fp32}; }
  [[nodiscard]] float first() {
    float value = 0.0F;
    world_.device().copy_out(&value, buffer_.data(), sizeof value, world_.compute_stream());
    world_.compute_stream().wait();
    return value;
  }

 private:
  World& world_;
  Buffer buffer_;
  std::int64_t count_;
};

/// Keeps both channels busy, with buffers made and destroyed in each step; `at_step` may throw.
void work(World& world, int steps, const std::function<void(int)>& at_step) {
  constexpr std::int64_t kPart = 20'000;
  for (int step = 0; step < steps; ++step) {
    Elements full{world, kPart * world.size()};
    Elements gradient{world, kPart * world.size()};
    const View whole = full.view();
    const View gradients = gradient.view();
    const Channel gather = world.gather_channel();
    const Channel reduce = world.reduce_channel();
    gather.communicator.submit(
        Batch{"gather"}.all_gather(whole.slice(world.rank() * kPart, kPart), whole), gather.stream);
    reduce.communicator.submit(Batch{"reduce"}.all_reduce(gradients), reduce.stream);
    at_step(step);
    gather.stream.wait();
    reduce.stream.wait();
    if (step % 5 == 0) { world.barrier(); }
  }
}

template <class E>
std::function<void(World&)> throwing(E error) {
  return [error](World& world) {
    work(world, 20, [&](int step) {
      if (world.rank() == kCulprit && step == 7) { throw error; }
    });
  };
}

/// Runs one batch of all ranks over each channel: afterwards NCCL is connected, and `submit` waits
/// for no rank.
void connect(World& world, const std::vector<Channel>& channels) {
  Elements data{world, 4};
  for (const Channel& channel : channels) {
    channel.communicator.submit(Batch{"first"}.all_reduce(data.view()), channel.stream);
    channel.stream.wait();
  }
}

void submit_other_batches(World& world) {
  Elements data{world, 12};
  const Channel reduce = world.reduce_channel();
  const bool odd = world.rank() == kCulprit;
  const View view = data.view().slice(0, odd ? 3 : 4);
  try {
    reduce.communicator.submit(Batch{"x"}.all_reduce(view), reduce.stream);
    reduce.stream.wait();
  } catch (const CommError& error) {  // every rank gets the text, and nothing was moved
    std::printf("heard: %s, first element %g\n", error.what(), static_cast<double>(data.first()));
    std::fflush(stdout);
    // Rank 0 reports and then ends the other processes, but only after the test has seen all of
    // them.
    while (world.rank() != 0) { ::pause(); }
    while (std::getchar() != EOF) {}
    world.barrier();
  }
}

void miss_a_call(World& world) {
  Elements data{world, 4};
  const Channel gather = world.gather_channel();
  world.barrier();
  if (world.rank() == kCulprit) { return; }
  gather.communicator.submit(Batch{"h.3"}.all_reduce(data.view()), gather.stream);
  gather.stream.wait();
}

void miss_an_exchange(World& world) {
  world.barrier();
  if (world.rank() != kCulprit) { world.barrier(); }
}

void say_process(World& world) {
  std::printf("rank %d pid %ld\n", world.rank(), static_cast<long>(::getpid()));
  std::fflush(stdout);
}

/// The job's first collective, which rank 1 never calls.
void miss_the_first_call(World& world) {
  Elements data{world, 4};
  const Channel gather = world.gather_channel();
  say_process(world);
  while (world.rank() == kCulprit) { ::pause(); }
  gather.communicator.submit(Batch{"h.3"}.all_reduce(data.view()), gather.stream);
  gather.stream.wait();
}

/// Enqueues so much work on all devices before a batch that the deadline passes during it.
void be_behind(World& world, bool as_graph) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  connect(world, {reduce});
  const auto enqueue = [&] {
    reduce.stream.call(
        [work = 2 * world.options().deadline] { std::this_thread::sleep_for(work); });
    reduce.communicator.submit(Batch{"x"}.all_reduce(data.view()), reduce.stream);
  };
  if (as_graph) {
    world.run_as_graph(enqueue);
  } else {
    enqueue();
  }
  reduce.stream.wait();
}

/// Steps with more batches on one channel than are watched at a time.
void run_long_graphs(World& world) {
  constexpr int kBatches = 4200;
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  for (int step = 0; step < 2; ++step) {
    world.run_as_graph([&] {
      for (int i = 0; i < kBatches; ++i) {
        reduce.communicator.submit(Batch{"x"}.all_reduce(data.view()), reduce.stream);
      }
    });
  }
  reduce.stream.wait();
}

/// An exception in a step that becomes a graph fails on all ranks; then they continue.
void throw_within_a_graph(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  const auto submit = [&] {
    reduce.communicator.submit(Batch{"x"}.all_reduce(data.view()), reduce.stream);
  };
  world.run_as_graph(submit);
  try {
    world.run_as_graph([&] {
      submit();
      throw ContractError{"not this step"};
    });
  } catch (const ContractError&) {  // expected
  }
  submit();
  // Splitting waits for all work in flight.
  const auto group = reduce.communicator.split([](int) { return 0; }, "all");
  world.run_as_graph(submit);
  reduce.stream.wait();
  if (data.first() != static_cast<float>(world.size() * world.size() * world.size())) {
    throw std::logic_error{"the graph that was not launched has added"};
  }
}

/// Works until a rank, whose process id is printed here, is killed or stopped.
void work_on(World& world) {
  work(world, 1 << 30, [&](int step) {
    if (step == 3) { say_process(world); }
  });
}

/// Like work_on, with each step's batches in a graph.
void work_on_as_graphs(World& world) {
  constexpr std::int64_t kPart = 1000;
  Elements full{world, kPart * world.size()};
  Elements gradient{world, kPart * world.size()};
  world.barrier();
  const View whole = full.view();
  const Channel gather = world.gather_channel();
  const Channel reduce = world.reduce_channel();
  for (int step = 0;; ++step) {
    world.run_as_graph([&] {
      gather.communicator.submit(
          Batch{"gather"}.all_gather(whole.slice(world.rank() * kPart, kPart), whole),
          gather.stream);
      reduce.communicator.submit(Batch{"reduce"}.all_reduce(gradient.view()), reduce.stream);
    });
    gather.stream.wait();
    reduce.stream.wait();
    if (step == 3) { say_process(world); }
  }
}

/// Like work_on, in two groups: rank 0, and the others, until one of those is killed. The parent
/// communicator and another group are idle.
void work_on_in_groups(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  const Channel group =
      world.split(reduce, [](int rank) { return rank == 0 ? 0 : 1; }, "all but 0");
  (void)world.split(world.gather_channel(), [](int) { return 0; }, "idle");
  say_process(world);
  for (;;) {
    group.communicator.submit(Batch{"work"}.all_reduce(data.view()), group.stream);
    group.stream.wait();
  }
}

/// A model of a few units; each pair of ranks shares the shards of one copy.
class PairsModel {
 public:
  explicit PairsModel(World& world)
      : model_{world, {.strategy = Strategy::hybrid, .shard_group = 2}} {
    for (const char* const name : {"a", "b", "c"}) {
      units_.push_back(model_.add_unit(name, {{"w", {1000}}}));
    }
    model_.materialize(init::constant(1.0F));
    model_.optimize_with(SGD{.lr = 0.1F, .momentum = 0.0F});
  }

  void forward() {
    for (const Unit unit : units_) { const auto scope = model_.forward(unit); }
  }
  void backward() {
    for (std::size_t i = units_.size(); i-- > 0;) {  // gradients keep their initial value: 0
      const auto scope = model_.backward(units_[i]);
    }
  }
  void step() { model_.step(); }

 private:
  ShardedModel model_;
  std::vector<Unit> units_;
};

/// Like work_on, with a model in pairs.
void work_on_in_pairs(World& world) {
  PairsModel model{world};
  for (int step = 0;; ++step) {
    model.forward();
    model.backward();
    model.step();
    if (step == 3) { say_process(world); }
  }
}

/// Runs `way` with a model in two stages of two shards.
std::function<void(World&)> on_a_mesh(std::function<void(World&)> way) {
  return [way = std::move(way)](World& world) {
    const ShardedModel model{world,
                             {.strategy = Strategy::zero3, .mesh = {{"pipe", 2}, {"shard", 2}}}};
    way(world);
  };
}

/// Both ranks of a pair fail, with reductions in flight that the other pair does not reach.
void throw_as_a_pair(World& world) {
  PairsModel model{world};
  model.forward();
  model.backward();
  model.step();
  model.forward();
  if (world.rank() > 1) { world.barrier(); }
  model.backward();
  throw ContractError{"cannot go on"};
}

/// Rank 1 is late and rank 0 waits for it in their group. Rank 2 waits for rank 0 in another group,
/// where the deadline passes first.
void miss_in_a_group(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  const Channel pair = world.split(reduce, [](int rank) { return rank / 2; }, "shard reduce");
  const Channel across = world.split(reduce, [](int rank) { return rank % 2; }, "replicas");
  world.barrier();
  while (world.rank() % 2 == 1) { ::pause(); }
  if (world.rank() == 0) {
    ::usleep(static_cast<useconds_t>(world.options().deadline.count()) * 667);
    pair.communicator.submit(Batch{"h.3"}.all_reduce(data.view()), pair.stream);
  }
  across.communicator.submit(Batch{"h.3"}.all_reduce(data.view()), across.stream);
  across.stream.wait();
}

/// Rank 1 is late and rank 0 waits for it in their pair. The others wait for both, in a call of all
/// ranks, where the deadline passes first.
void hold_up_all(World& world) {
  Elements data{world, 4};
  const Channel pair =
      world.split(world.reduce_channel(), [](int rank) { return rank / 2; }, "shard reduce");
  world.barrier();
  while (world.rank() == kCulprit) { ::pause(); }
  if (world.rank() == 0) {
    ::usleep(static_cast<useconds_t>(world.options().deadline.count()) * 500);
    pair.communicator.submit(Batch{"h.3"}.all_reduce(data.view()), pair.stream);
    pair.stream.wait();
  }
  world.barrier();
}

/// Rank 0 computes until the others have passed their deadline and negotiate; then it waits for
/// them in another call.
void come_late(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  world.barrier();
  if (world.rank() > 0) { world.barrier(); }
  std::this_thread::sleep_for(world.options().deadline + std::chrono::milliseconds{200});
  reduce.communicator.submit(Batch{"h.3"}.all_reduce(data.view()), reduce.stream);
  reduce.stream.wait();
}

/// Rank 1 is late and delays two other ranks in the first batch of their group, which is destroyed
/// as soon as the batch ends. Then rank 1 waits for all of them.
void hold_up_and_let_go(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  const int last = world.size() - 1;
  {
    const auto group =
        reduce.communicator.split([last](int rank) { return rank == last ? 1 : 0; }, "all but one");
    if (world.rank() == kCulprit) { ::usleep(400'000); }
    group->submit(Batch{"x"}.all_reduce(data.view()), reduce.stream);
    reduce.stream.wait();
  }
  while (world.rank() != kCulprit) { ::pause(); }
  world.barrier();
}

/// Ranks 1 and 2 issue different batches in their group; rank 0 waits for something else.
void differ_in_a_group(World& world) {
  Elements data{world, 12};
  const Channel group =
      world.split(world.reduce_channel(), [](int rank) { return rank == 0 ? 0 : 1; }, "all but 0");
  if (world.rank() > 0) {
    const View view = data.view().slice(0, world.rank() == kCulprit ? 4 : 3);
    group.communicator.submit(Batch{"x"}.all_reduce(view), group.stream);
    group.stream.wait();
  }
  world.barrier();
}

/// Uses, destroys and recreates a group.
void split_once(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  for (int i = 0; i < 2; ++i) {
    const auto group = reduce.communicator.split([](int) { return 0; }, "all");
    group->submit(Batch{"x"}.all_reduce(data.view()), reduce.stream);
    reduce.stream.wait();
  }
}

/// Destroys a group while the others wait for a rank in its batch, which is part of a graph.
void leave_a_group_in_a_graph(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  auto group = reduce.communicator.split([](int) { return 0; }, "all");
  connect(world, {{*group, reduce.stream}});
  if (world.rank() == kCulprit) { ::usleep(200'000); }
  world.run_as_graph([&] { group->submit(Batch{"x"}.all_reduce(data.view()), reduce.stream); });
  group.reset();
  reduce.stream.wait();
  reduce.communicator.submit(Batch{"y"}.all_reduce(data.view()), reduce.stream);
  reduce.stream.wait();
}

/// Destroys a group with a batch in flight that a rank never reaches.
void leave_a_group_alone(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  {
    const auto group = reduce.communicator.split([](int) { return 0; }, "all");
    connect(world, {{*group, reduce.stream}});
    while (world.rank() == kCulprit) { ::pause(); }
    group->submit(Batch{"x"}.all_reduce(data.view()), reduce.stream);
  }
  world.barrier();
}

/// withdraw() ends all communicators of the rank.
void go_on_after_withdrawal(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  const Channel group = world.split(reduce, [](int) { return 0; }, "all");
  connect(world, {group});
  if (world.rank() != kCulprit) { return world.barrier(); }
  group.communicator.submit(Batch{"x"}.all_reduce(data.view()), group.stream);
  group.communicator.withdraw();
  try {
    group.stream.wait();
  } catch (const CommError&) {  // as expected; the rank continues
  }
  const Channel gather = world.gather_channel();
  gather.communicator.submit(Batch{"y"}.all_reduce(data.view()), gather.stream);
}

/// All ranks but one split the communicator; that one asks the world for an existing group.
void split_what_one_has(World& world) {
  const Channel reduce = world.reduce_channel();
  const GroupOf together = [](int) { return 0; };
  (void)world.split(reduce, together, "all");
  if (world.rank() == kCulprit) {
    (void)world.split(reduce, together, "all");
    (void)reduce.communicator.exchange("something else");
  } else {
    (void)reduce.communicator.split(together, "all");
  }
}

void split_within_a_graph(World& world) {
  Elements data{world, 4};
  const Channel reduce = world.reduce_channel();
  world.run_as_graph([&] {
    reduce.communicator.submit(Batch{"x"}.all_reduce(data.view()), reduce.stream);
    (void)reduce.communicator.split([](int) { return 0; }, "all");
  });
}

/// Aborts while the rank's own thread is within the split; the NCCL double counts splits.
void abort_within_a_split(World& world) {
  std::jthread aborts;
  if (world.rank() == kCulprit) {
    auto* const splits =
        device::CudaModule::get().function<std::uint64_t()>("emulated_nccl_splits");
    aborts = std::jthread{[&world, splits](const std::stop_token& ended) {
      while (splits() == 0) {
        if (ended.stop_requested()) { return; }
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      world.abort("stop now");
    }};
  }
  split_once(world);
}

/// The rank fails with submitted batches that no other rank will ever reach.
void throw_alone_in_front(World& world) {
  Elements data{world, 4};
  Elements other{world, 4};
  const View view = data.view();
  const Channel gather = world.gather_channel();
  const Channel reduce = world.reduce_channel();
  connect(world, {gather, reduce});
  if (world.rank() == kCulprit) {
    gather.communicator.submit(Batch{"a"}.all_reduce(view), gather.stream);
    gather.communicator.submit(Batch{"b"}.all_reduce(view), gather.stream);
    reduce.communicator.submit(Batch{"c"}.all_reduce(other.view()), reduce.stream);
    throw ContractError{"cannot go on"};
  }
  world.barrier();
}

/// The same over a communicator of the program, which is destroyed first.
void throw_alone_in_a_group(World& world) {
  Elements data{world, 4};
  Elements other{world, 4};
  const Channel gather = world.gather_channel();
  const Channel reduce = world.reduce_channel();
  const auto group = reduce.communicator.split([](int) { return 0; }, "all");
  connect(world, {gather, {*group, reduce.stream}});
  if (world.rank() == kCulprit) {
    gather.communicator.submit(Batch{"a"}.all_reduce(data.view()), gather.stream);
    group->submit(Batch{"b"}.all_reduce(other.view()), reduce.stream);
    throw ContractError{"cannot go on"};
  }
  world.barrier();
}

void abort_and_swallow(World& world) {
  if (world.rank() == kCulprit) { world.abort("stop now"); }
  try {
    world.barrier();
  } catch (const CommError&) {  // swallowed; the job is lost anyway
  }
}

/// The run succeeds; afterwards one process ends with an error.
void succeed(World& world) {
  work(world, 3, [](int) {});
}

const std::map<std::string, std::function<void(World&)>>& ways() {
  static const std::map<std::string, std::function<void(World&)>> ways{
      {"config", throwing(ConfigError{"bad configuration"})},
      {"memory", throwing(std::bad_alloc{})},
      {"other", throwing(std::logic_error{"a bug"})},
      {"comm", throwing(CommError{"no network"})},
      {"differ", submit_other_batches},
      {"miss", miss_a_call},
      {"miss-first", miss_the_first_call},
      {"behind", [](World& world) { be_behind(world, false); }},
      {"behind-in-graph", [](World& world) { be_behind(world, true); }},
      {"long-graphs", run_long_graphs},
      {"throw-in-graph", throw_within_a_graph},
      {"miss-exchange", miss_an_exchange},
      {"work", work_on},
      {"graphs", work_on_as_graphs},
      {"groups", work_on_in_groups},
      {"differ-in-group", differ_in_a_group},
      {"miss-in-group", miss_in_a_group},
      {"hold-up-all", hold_up_all},
      {"come-late", come_late},
      {"hold-up-and-let-go", hold_up_and_let_go},
      {"hold-up-none",
       [](World& world) {
         while (world.rank() == kCulprit) { ::pause(); }
         world.barrier();
       }},
      {"split", split_once},
      {"leave-group-in-graph", leave_a_group_in_a_graph},
      {"leave-group-alone", leave_a_group_alone},
      {"withdraw", go_on_after_withdrawal},
      {"split-what-one-has", split_what_one_has},
      {"split-in-graph", split_within_a_graph},
      {"abort-in-split", abort_within_a_split},
      {"pairs", work_on_in_pairs},
      {"pair-throws", throw_as_a_pair},
      {"mesh-config", on_a_mesh(throwing(ConfigError{"bad configuration"}))},
      {"mesh-miss", on_a_mesh(miss_a_call)},
      {"mesh-work", on_a_mesh(work_on)},
      {"all", [](World&) { throw ConfigError{"everybody sees it"}; }},
      {"all-but-0",
       [](World& world) {
         if (world.rank() > 0) { throw ConfigError{"everybody sees it"}; }
         world.barrier();
       }},
      {"front", throw_alone_in_front},
      {"front-in-group", throw_alone_in_a_group},
      {"swallow", abort_and_swallow},
      {"again", succeed},
      {"late-exit", succeed},
      {"slow-exit", succeed},
      {"succeed", succeed},
  };
  return ways;
}

int report(const std::exception& error, int status) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return status;
}

int run_way(const std::string& way, const WorldOptions& options) {
  try {
    run(ways().at(way), options);
    if (way == "again" && launched_rank() != kCulprit) { run(ways().at(way), options); }
    if (way == "slow-exit" && launched_rank() == 0) {
      std::this_thread::sleep_for(3 * options.deadline);
    }
    return way == "late-exit" && launched_rank() == kCulprit ? 7 : 0;
  } catch (const CommError& error) { return report(error, 4); } catch (const ConfigError& error) {
    return report(error, 2);
  } catch (const ContractError& error) {
    return report(error, 2);
  } catch (const OutOfMemory& error) {
    return report(error, 3);
  } catch (const std::exception& error) { return report(error, 1); }
}

}  // namespace

int main(int, char** arguments) {
  WorldOptions options;
  if (environment("TESSERA_CUDA_MODULE")) { options.device = DeviceKind::cuda; }
  options.deadline = std::chrono::milliseconds{std::atoll(arguments[2])};
  return run_way(arguments[1], options);
}
