// Pipelines: each rank has some of the layers, and micro-batches pass through them one after the
// other. Draws every schedule, prints how many micro-batches' activations each rank holds, and
// gives the bubble, the part of a step in which ranks wait: by formula, by the simulator, and
// measured on ranks whose stages sleep as long as a layer would compute. (Sleeping uses no core, so
// there may be more ranks than cores.) Exit status 1 if the simulator differs from a formula.
// docs/lessons/pipeline_bubbles.md
//
//   pipeline_bubbles [number of ranks = 4, from 1 to 8]

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "argument.hpp"
#include "tessera/base/error.hpp"
#include "tessera/pipeline/pipeline.hpp"
#include "tessera/pipeline/timeline.hpp"
#include "tessera/world/mesh.hpp"
#include "tessera/world/run.hpp"

namespace {

namespace pipeline = tessera::pipeline;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// A forward pass takes one unit of time, a backward pass two: the gradients of the input and of the
// weights are one product each. A chunk is a part of a rank's layers.
constexpr Seconds kUnit{0.012};
constexpr int kChunks = 2;

struct Variant {
  const char* name;
  pipeline::Schedule schedule;
  int chunks;
  double formula;
};

std::vector<Variant> variants(int ranks, int micro_batches) {
  const double flushed = pipeline::bubble_by_formula(ranks, micro_batches);
  // A third of 1F1B's bubble remains, if no rank runs out of micro-batches.
  const double zero = (ranks - 1.0) / (3.0 * micro_batches + ranks - 1);
  return {{"GPipe", pipeline::gpipe(ranks, micro_batches), 1, flushed},
          {"1F1B", pipeline::one_forward_one_backward(ranks, micro_batches), 1, flushed},
          {"interleaved 1F1B, 2 chunks", pipeline::interleaved(ranks, kChunks, micro_batches),
           kChunks, pipeline::bubble_by_formula(ranks, micro_batches, kChunks)},
          {"zero bubble (ZB-H1)", pipeline::zero_bubble(ranks, micro_batches), 1, zero}};
}

// The actions that ranks were told to compute, and their times.
class SleepingStages {
 public:
  explicit SleepingStages(Seconds unit) : unit_{unit} {}

  [[nodiscard]] pipeline::Passes passes() {
    return {.forward = [this](const auto&...) { compute(1); },
            .backward =
                [this](const pipeline::Turn& turn, const auto&...) {
                  compute(turn.action.work == pipeline::Work::backward ? 2 : 1);
                },
            .backward_weight = [this](const auto&...) { compute(1); }};
  }
  [[nodiscard]] double begin() const { return begin_; }
  [[nodiscard]] double end() const { return end_; }
  [[nodiscard]] double busy() const { return busy_; }

 private:
  static double now() { return Seconds{Clock::now().time_since_epoch()}.count(); }
  void compute(int units) {
    const double from = now();
    if (busy_ == 0) { begin_ = from; }
    std::this_thread::sleep_for(unit_ * units);
    end_ = now();
    busy_ += end_ - from;
  }

  Seconds unit_;
  double begin_ = 0;
  double end_ = 0;
  double busy_ = 0;
};

// The fraction of the time, from the first rank's start to the last one's end, in which a rank
// waits, averaged over the ranks.
double measure(const Variant& variant) {
  const auto ranks = static_cast<int>(variant.schedule.ranks.size());
  std::vector<SleepingStages> all(static_cast<std::size_t>(ranks),
                                  SleepingStages{kUnit / variant.chunks});
  tessera::run_ranks(ranks, [&](tessera::World& world) {
    const tessera::Mesh mesh{world, {{"pipe", ranks}}};
    pipeline::Pipeline pipe{mesh, variant.schedule, {.elems = 1024}};
    world.barrier();
    pipe.run(all[static_cast<std::size_t>(world.rank())].passes());
  });
  double begin = all[0].begin();
  double end = all[0].end();
  double busy = 0;
  for (const SleepingStages& rank : all) {
    begin = std::min(begin, rank.begin());
    end = std::max(end, rank.end());
    busy += rank.busy();
  }
  return 1 - busy / (ranks * (end - begin));
}

// Returns whether the simulator gives the formula's bubble.
bool show(const Variant& variant, bool drawn) {
  const pipeline::Timeline timeline = pipeline::play(variant.schedule);
  if (drawn) {
    std::printf("%s\n%s", variant.name, pipeline::draw(timeline).c_str());
    std::printf("holds at most:");
    for (const int held : pipeline::most_in_flight(variant.schedule)) { std::printf(" %d", held); }
    std::printf(" of %d\n\n", variant.schedule.micro_batches);
    return true;
  }
  std::printf("%-27s %13d %9.3f %9.3f %9.3f\n", variant.name, variant.schedule.micro_batches,
              variant.formula, timeline.bubble(), measure(variant));
  return std::abs(timeline.bubble() - variant.formula) < 1e-9;
}

// A schedule is data: this is 1F1B with two of rank 0's actions swapped.
void show_own_schedule() {
  pipeline::Schedule mine = pipeline::one_forward_one_backward(2, 4);
  mine.name = "mine";
  std::swap(mine.ranks[0][1], mine.ranks[0][2]);  // rank 0 waits for its first gradient
  pipeline::check(mine);                          // throws ConfigError that says what is wrong
  std::printf("\na schedule of one's own, bubble %.3f\n%s", pipeline::play(mine).bubble(),
              pipeline::draw(pipeline::play(mine)).c_str());
  mine.in_flight_limit = 1;  // the micro-batches that a rank may hold
  try {
    pipeline::check(mine);
  } catch (const tessera::ConfigError& error) { std::printf("%s\n", error.what()); }
}

bool compare(int ranks) {
  std::printf("%d ranks, %d micro-batches\n\n", ranks, 2 * ranks);
  for (const Variant& variant : variants(ranks, 2 * ranks)) { (void)show(variant, true); }
  std::printf("%-27s %13s %9s %9s %9s\n", "bubble", "micro-batches", "formula", "simulated",
              "measured");
  bool right = true;
  for (const int times : {1, 2, 4}) {
    for (const Variant& variant : variants(ranks, times * ranks)) {
      right = show(variant, false) && right;
    }
  }
  show_own_schedule();
  std::printf("\n%s\n", right ? "the simulator agrees with the formulas"
                              : "the simulator does NOT agree with the formulas");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return compare(only_argument(argc, argv, 1, 8, 4)) ? 0 : 1;
  } catch (const tessera::ConfigError& error) {
    std::fprintf(stderr, "pipeline_bubbles: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline_bubbles: %s\n", error.what());
    return 1;
  }
}
