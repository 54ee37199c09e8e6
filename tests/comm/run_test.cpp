// Starting ranks, and how their ends are reported.
#include "tessera/world/run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>

#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"
#include "tessera/kernels/matmul.hpp"
#include "world/launcher.hpp"

namespace tessera::run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class E>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) { return error.what(); }
  return "nothing";
}

TEST(RunRanks, EveryRankRunsOnAThreadOfItsOwn) {
  std::mutex mutex;
  std::set<int> ranks;
  std::set<std::thread::id> threads{std::this_thread::get_id()};
  run_ranks(5, [&](World& world) {
    EXPECT_EQ(world.size(), 5);
    const std::lock_guard lock{mutex};
    ranks.insert(world.rank());
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_THAT(ranks, testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(threads.size(), 6U);
}

TEST(RunRanks, ManyMoreRanksThanProcessorsMeet) {
  run_ranks(64, [](World& world) {
    EXPECT_EQ(world.sum(1.0), 64.0);
    float value = 1.0F;
    const Channel channel = world.reduce_channel();
    channel.communicator.submit(Batch{"t"}.all_reduce({&value, 1, DType::fp32}), channel.stream);
    channel.stream.wait();
    EXPECT_EQ(value, 64.0F);
  });
}

TEST(RunRanks, RefusesAnImpossibleNumberOfRanks) {
  for (const int ranks : {-1, 0, 1025}) {
    EXPECT_EQ(error_of<ConfigError>([&] { run_ranks(ranks, [](World&) { FAIL(); }); }),
              "the number of ranks must be from 1 to 1024, but is " + std::to_string(ranks));
  }
}

TEST(RunRanks, RefusesInvalidOptions) {
  WorldOptions late;
  late.deadline = std::chrono::milliseconds{0};
  EXPECT_THROW(run_ranks(1, [](World&) { FAIL(); }, late), ConfigError);
  EXPECT_THROW(run([](World&) { FAIL(); }, late), ConfigError);
  WorldOptions delays;
  delays.testing.delays = DelayInjection{.seed = 1, .longest = std::chrono::microseconds{-1}};
  EXPECT_THROW(run_ranks(1, [](World&) { FAIL(); }, delays), ConfigError);
  for (const WorldOptions& traced :
       {WorldOptions{.trace = true, .trace_steps = -1}, WorldOptions{.trace_steps = 2}}) {
    EXPECT_THROW(run_ranks(1, [](World&) { FAIL(); }, traced), ConfigError);
  }
  for (const int threads : {-1, 0, 257}) {
    const WorldOptions options{.threads = threads};
    EXPECT_EQ(
        error_of<ConfigError>([&] { run_ranks(2, [](World&) { FAIL(); }, options); }),
        "`threads` is " + std::to_string(threads) + ": choose a number of threads from 1 to 256");
  }
  for (const int threads : {-1, 257}) {
    const WorldOptions options{.host_threads = threads};
    EXPECT_EQ(error_of<ConfigError>([&] { run_ranks(2, [](World&) { FAIL(); }, options); }),
              "`host_threads` is " + std::to_string(threads) +
                  ": choose up to 256 threads, or 0 for the rank's part of the cores");
  }
  EXPECT_EQ(
      error_of<ConfigError>([] { run_ranks(2, [](World&) { FAIL(); }, {.host_threads = 4}); }),
      "`host_threads` has no effect on a CPU, which computes on the host with `threads`: leave "
      "it at its default");
  EXPECT_EQ(error_of<ConfigError>([] {
              run_ranks(2, [](World&) { FAIL(); },
                        {.deterministic = true, .nondeterministic_attention = true});
            }),
            "`nondeterministic_attention` cannot be combined with `deterministic`, which requires "
            "the same bits in every run: choose one of them");
  EXPECT_EQ(
      error_of<ConfigError>([] {
        run_ranks(2, [](World&) { FAIL(); }, {.tuning = {.attention_workspace_bytes = 0}});
      }),
      "`tuning.attention_workspace_bytes` has no effect on a CPU: leave it out, or set `device` to "
      "cuda");
}

TEST(RunRanks, TheCauseKeepsItsTypeAndIsPrecededByItsRank) {
  const auto thrown_by_rank_1 = [](auto error) {
    return [error] {
      run_ranks(3, [error](World& world) {
        if (world.rank() == 1) { throw error; }
        world.barrier();
      });
    };
  };
  EXPECT_EQ(error_of<ContractError>(thrown_by_rank_1(ContractError{"a"})), "rank 1: a");
  EXPECT_EQ(error_of<ConfigError>(thrown_by_rank_1(ConfigError{"b"})), "rank 1: b");
  EXPECT_EQ(error_of<OutOfMemory>(thrown_by_rank_1(OutOfMemory{"c"})), "rank 1: c");
  EXPECT_EQ(error_of<DeviceError>(thrown_by_rank_1(DeviceError{"d"})), "rank 1: d");
  EXPECT_EQ(error_of<CommError>(thrown_by_rank_1(CommError{"e"})), "rank 1: e");
  EXPECT_EQ(error_of<FormatError>(thrown_by_rank_1(FormatError{"f"})), "rank 1: f");
  EXPECT_EQ(error_of<NumericError>(thrown_by_rank_1(NumericError{"n"})), "rank 1: n");
  EXPECT_EQ(error_of<OutOfMemory>(thrown_by_rank_1(std::bad_alloc{})), "rank 1: out of memory");
  EXPECT_EQ(error_of<Error>(thrown_by_rank_1(std::logic_error{"g"})), "rank 1: g");
  EXPECT_EQ(error_of<Error>(thrown_by_rank_1(7)),
            "rank 1: an exception that is not a std::exception");
}

TEST(RunRanks, AStreamsFailureAfterTheBodyFailsTheJob) {
  WorldOptions options;
  options.testing.compute_stream = ComputeStream::worker;
  using Choose = Stream (*)(World&);
  const std::pair<const char*, Choose> streams[] = {
      {"compute", [](World& world) { return world.compute_stream(); }},
      {"gather", [](World& world) { return world.gather_channel().stream; }},
      {"reduce", [](World& world) { return world.reduce_channel().stream; }},
  };
  for (const auto& [name, stream] : streams) {
    const auto failing = [&, choose = stream] {
      run_ranks(
          2,
          [&](World& world) {
            if (world.rank() == 0) { return; }
            device::enqueue(choose(world), [] {
              std::this_thread::sleep_for(std::chrono::milliseconds{20});
              throw DeviceError{"late"};
            });
          },
          options);
    };
    EXPECT_EQ(error_of<DeviceError>(failing), "rank 1: late") << name;
  }
}

/// Runs four ranks that throw `text(rank)`, rank 3 before the others.
template <class Text>
void fail_after_rank_3(const Text& text) {
  run_ranks(4, [&](World& world) {
    if (world.rank() == 3) { throw FormatError{text(3)}; }
    try {
      world.barrier();            // ends when rank 3 has failed and the others know
    } catch (const CommError&) {  // an echo: the rank also fails on its own
    }
    throw FormatError{text(world.rank())};
  });
}

TEST(RunRanks, ReportsTheEarliestCauseFirst) {
  const std::string error = error_of<FormatError>(
      [] { fail_after_rank_3([](int rank) { return "mine is " + std::to_string(rank); }); });
  EXPECT_TRUE(error.starts_with("rank 3: mine is 3\nthen rank ")) << error;
  for (const int rank : {0, 1, 2}) {
    const std::string other = "then rank " + std::to_string(rank) + ": mine is ";
    EXPECT_NE(error.find(other + std::to_string(rank)), std::string::npos) << error;
  }
}

TEST(RunRanks, RanksThatFailWithOneTextCountAsTheLowestOfThem) {
  EXPECT_EQ(error_of<FormatError>([] { fail_after_rank_3([](int) { return "alike"; }); }),
            "rank 0: alike");
}

// The deadline is minutes away: the error is due to rank 1's end, not to the deadline.
TEST(RunRanks, ARankThatEndsWithoutACollectiveItsPeersMakeIsNamedAtOnce) {
  for (const bool never : {false, true}) {
    std::string text;
    const auto begin = std::chrono::steady_clock::now();
    try {
      run_ranks(3, [&](World& world) {
        if (world.rank() == 1) {
          if (!never) { world.barrier(); }
          return;
        }
        world.barrier();
        if (!never) { world.barrier(); }
      });
    } catch (const CommError& error) { text = error.what(); }
    EXPECT_NE(text.find("rank 1, whose program has ended"), std::string::npos) << text;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{60});
  }
}

TEST(RunRanks, AJobIsUnaffectedByAnEarlierFailedOne) {
  EXPECT_THROW(run_ranks(2, [](World&) { throw FormatError{"x"}; }), FormatError);
  std::atomic<int> sum = 0;
  run_ranks(2, [&](World& world) { sum += static_cast<int>(world.sum(1.0)); });
  EXPECT_EQ(sum, 4);
}

TEST(RunRanks, AWorldHasItsDeviceMemoryAndKernels) {
  run_ranks(2, [](World& world) {
    EXPECT_EQ(world.device().kind(), DeviceKind::cpu);
    EXPECT_EQ(world.memory().report().live.total(), 0U);
    {
      const Buffer buffer = world.allocate(Category::activations, 1000, "x");
      EXPECT_EQ(world.memory().report().live[Category::activations], 1024U);
    }
    EXPECT_EQ(world.memory().report().live.total(), 0U);
    bool computed = false;
    world.compute([&] { computed = true; });
    EXPECT_TRUE(computed);
    EXPECT_EQ(world.gather_channel().communicator.name(), "local");
    EXPECT_NE(&world.gather_channel().communicator, &world.reduce_channel().communicator);
    EXPECT_EQ(kernels::fast_row_multiple(world.compute_stream()), 1);
  });
}

TEST(Run, RunsAloneOnTheCallingThreadAndRethrowsErrors) {
  const auto caller = std::this_thread::get_id();
  run([&](World& world) {
    EXPECT_EQ(world.size(), 1);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(world.sum(2.5), 2.5);
  });
  EXPECT_EQ(error_of<std::logic_error>([] { run([](World&) { throw std::logic_error{"own"}; }); }),
            "own");
}

// Sets an environment variable for one scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_{name} { ::setenv(name, value, 1); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Run, RefusesToBeOneOfSeveralProcessesOfTorchrunAndSaysWhatToDo) {
  const ScopedVariable rank{"RANK", "0"};
  {
    const ScopedVariable size{"WORLD_SIZE", "4"};
    EXPECT_THAT(error_of<ConfigError>([] { run([](World&) { FAIL(); }); }),
                AllOf(HasSubstr("torchrun"), HasSubstr("one of 4 processes (WORLD_SIZE)"),
                      HasSubstr("mpirun -n 4"), HasSubstr("--ranks 4"),
                      HasSubstr("if it did not, unset WORLD_SIZE")));
  }
  const ScopedVariable size{"WORLD_SIZE", "1"};
  run([](World& world) {
    EXPECT_EQ(world.size(), 1);
    EXPECT_EQ(world.gather_channel().communicator.name(), "local") << "MPI is not started";
  });
}

TEST(Run, TorchrunsProcessesAreAJobOnCudaDevices) {
  const ScopedVariable rank{"RANK", "0"};
  for (const char* const processes : {"1", "4"}) {
    const ScopedVariable size{"WORLD_SIZE", processes};
    EXPECT_EQ(launched_job(DeviceKind::cuda).value().size, std::stoi(processes));
  }
}

TEST(Run, AProcessHasItsRankEvenIfItsJobIsRefused) {
  EXPECT_EQ(launched_rank(), 0);
  const ScopedVariable size{"WORLD_SIZE", "4"};
  {
    const ScopedVariable rank{"RANK", "3"};
    EXPECT_EQ(launched_rank(), 3);
  }
  const ScopedVariable rank{"RANK", "4"};
  EXPECT_THROW((void)launched_job(), ConfigError);
  EXPECT_EQ(launched_rank(), 0);
}

using Variables = std::map<std::string, std::string>;

std::optional<world::FoundJob> found(const Variables& variables) {
  return world::find_job([&](const char* name) -> std::optional<std::string> {
    const auto variable = variables.find(name);
    if (variable == variables.end()) { return std::nullopt; }
    return variable->second;
  });
}

std::string text_of(const std::optional<LaunchedJob>& job) {
  return job ? job->variable + ": " + std::to_string(job->rank) + " of " + std::to_string(job->size)
             : "none";
}

std::string found_text(const Variables& variables) {
  const auto job = found(variables);
  return job ? text_of(job->job) : "none";
}

TEST(Launcher, KnowsTheVariablesOfEachLauncher) {
  EXPECT_EQ(found_text({}), "none");
  EXPECT_EQ(found_text({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}}),
            "OMPI_COMM_WORLD_SIZE: 1 of 2");
  EXPECT_EQ(found_text({{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}}), "PMI_SIZE: 0 of 3");
  EXPECT_EQ(found_text({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "3"}}), "SLURM_NTASKS: 3 of 4");
  EXPECT_EQ(found_text({{"WORLD_SIZE", "5"}, {"RANK", "4"}}), "WORLD_SIZE: 4 of 5");
  // Variables of an allocation's shell or of other software: this is not a process of a job.
  EXPECT_EQ(found_text({{"SLURM_NTASKS", "4"}}), "none");
  EXPECT_EQ(found_text({{"WORLD_SIZE", "5"}}), "none");
  // mpirun inside a batch job: the inner launcher takes precedence.
  EXPECT_EQ(found_text({{"OMPI_COMM_WORLD_SIZE", "1"},
                        {"OMPI_COMM_WORLD_RANK", "0"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_PROCID", "0"}}),
            "OMPI_COMM_WORLD_SIZE: 0 of 1");
}

// What sbatch, salloc and `srun --pty bash` set for a shell, and srun for a process started there.
TEST(Launcher, ASlurmShellIsNoProcessOfAJob) {
  const Variables batch = {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(found_text(batch), "none");
  Variables pty = batch;
  pty.insert({{"SLURM_STEP_ID", "0"},
              {"SLURM_STEP_NUM_TASKS", "1"},
              {"PMI_RANK", "0"},
              {"PMI_SIZE", "1"}});
  EXPECT_EQ(text_of(world::joined_job(found(pty))), "none")
      << "srun speaks PMI to a job of one too";
  Variables step = pty;
  step["SLURM_STEP_NUM_TASKS"] = step["PMI_SIZE"] = "4";
  EXPECT_EQ(found_text(step), "SLURM_STEP_NUM_TASKS: 0 of 4");
  Variables inner = batch;  // an mpirun of MPICH in the batch job
  inner.insert({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ(found_text(inner), "PMI_SIZE: 1 of 4");
}

TEST(Launcher, MayKnowTheNumberOfProcessesOnThisMachine) {
  const auto on_machine = [](Variables variables, const char* name, const char* text) {
    if (name != nullptr) { variables[name] = text; }
    return found(variables)->job.on_machine;
  };
  const Variables open_mpi = {{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "5"}};
  EXPECT_EQ(on_machine(open_mpi, nullptr, nullptr), std::nullopt);
  EXPECT_EQ(on_machine(open_mpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "4"), 4);
  EXPECT_EQ(on_machine(open_mpi, "LOCAL_WORLD_SIZE", "4"), std::nullopt) << "another launcher's";
  EXPECT_EQ(on_machine({{"PMI_SIZE", "8"}, {"PMI_RANK", "0"}}, "MPI_LOCALNRANKS", "2"), 2);
  EXPECT_EQ(on_machine({{"WORLD_SIZE", "8"}, {"RANK", "0"}}, "LOCAL_WORLD_SIZE", "8"), 8);
  const Variables slurm = {{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(on_machine(slurm, "SLURM_NTASKS_PER_NODE", "4"), 4);
  EXPECT_EQ(on_machine(slurm, "SLURM_TASKS_PER_NODE", "4(x2)"), 4);
  EXPECT_EQ(on_machine(slurm, "SLURM_STEP_TASKS_PER_NODE", "8"), 8);
  Variables step = slurm;
  step["SLURM_TASKS_PER_NODE"] = "16(x2)";
  EXPECT_EQ(on_machine(step, "SLURM_STEP_TASKS_PER_NODE", "4(x2)"), 4)
      << "the step's, not the job's";
  // Counts that differ between machines, or make no sense, are unknown: most runs do not need them.
  for (const char* other : {"4(x1),2(x2)", "5,3", "4(", "4(x2", "x", "", "0", "-4", "9"}) {
    EXPECT_EQ(on_machine(slurm, "SLURM_TASKS_PER_NODE", other), std::nullopt) << other;
  }
}

TEST(Launcher, RunJoinsMpirunAlwaysAndSrunWhereItStartsSeveral) {
  const auto joined = [](const Variables& variables) {
    return text_of(world::joined_job(found(variables)));
  };
  EXPECT_EQ(joined({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}),
            "OMPI_COMM_WORLD_SIZE: 0 of 1");
  EXPECT_EQ(joined({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}}), "SLURM_NTASKS: 1 of 2");
  EXPECT_EQ(joined({{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}), "none");
  EXPECT_EQ(joined({{"WORLD_SIZE", "1"}, {"RANK", "0"}}), "none");
}

TEST(Launcher, TorchrunStartsProcessesOnCudaDevicesOnly) {
  const Variables torchrun = {{"WORLD_SIZE", "4"}, {"RANK", "3"}};
  EXPECT_EQ(text_of(world::joined_job(found(torchrun), DeviceKind::cuda)), "WORLD_SIZE: 3 of 4");
  EXPECT_THROW((void)world::joined_job(found(torchrun), DeviceKind::cpu), ConfigError);
  const Variables alone = {{"WORLD_SIZE", "1"}, {"RANK", "0"}};
  EXPECT_EQ(text_of(world::joined_job(found(alone), DeviceKind::cuda)), "WORLD_SIZE: 0 of 1");
}

TEST(Launcher, RefusesNumbersThatMakeNoSense) {
  for (const char* bad : {"", "x", "4x", "0", "-1", "99999999999999"}) {
    EXPECT_THROW((void)found({{"PMI_SIZE", bad}, {"PMI_RANK", "0"}}), ConfigError) << bad;
  }
  for (const char* bad : {"", "x", "-1", "4"}) {
    EXPECT_THROW((void)found({{"PMI_SIZE", "4"}, {"PMI_RANK", bad}}), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace tessera::run_test
