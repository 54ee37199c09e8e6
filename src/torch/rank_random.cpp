#include "torch/rank_random.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <utility>

#include "torch/initial_values.hpp"

namespace tessera::torch {

namespace {

// libtorch carries it to autograd's threads, and to a recomputed function, as it does the key of an
// Interception.
const auto kCarrier = c10::DebugInfoKind::TEST_INFO;

// libtorch's default generator of the CPU: the same numbers and states as libtorch's own, except
// that calls of a rank's thread, such as torch::manual_seed, reach the rank's generators.
class DefaultGenerator final : public at::CPUGeneratorImpl {
 public:
  // Takes the place of libtorch's. Called when the adapter is loaded, before there are threads.
  static DefaultGenerator* install() {
    // A variable of libtorch's own, which is not const.
    auto& held = const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator());
    auto own = c10::make_intrusive<DefaultGenerator>();
    DefaultGenerator* const installed = own.get();
    installed->at::CPUGeneratorImpl::set_state(*held.get_state().unsafeGetTensorImpl());
    held = at::Generator{std::move(own)};
    return installed;
  }

  void set_current_seed(std::uint64_t seed) override {
    if (RankRandom* const rank = RankRandom::current()) { return rank->seed(seed); }
    at::CPUGeneratorImpl::set_current_seed(seed);
  }
  std::uint64_t current_seed() const override {
    RankRandom* const rank = RankRandom::current();
    return rank != nullptr ? rank->all().front().current_seed()
                           : at::CPUGeneratorImpl::current_seed();
  }
  std::uint64_t seed() override {
    if (RankRandom::current() == nullptr) { return at::CPUGeneratorImpl::seed(); }
    const std::uint64_t drawn = c10::detail::getNonDeterministicRandom();
    RankRandom::current()->seed(drawn);
    return drawn;
  }
  void set_state(const c10::TensorImpl& state) override {
    RankRandom* const rank = RankRandom::current();
    if (rank == nullptr) { return at::CPUGeneratorImpl::set_state(state); }
    rank->all().front().unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    RankRandom* const rank = RankRandom::current();
    return rank != nullptr ? rank->all().front().unsafeGetGeneratorImpl()->get_state()
                           : at::CPUGeneratorImpl::get_state();
  }
};

[[maybe_unused]] const DefaultGenerator* const kDefault = DefaultGenerator::install();

}  // namespace

std::uint64_t mixed_seed(std::uint64_t seed, std::uint64_t place) noexcept {
  std::uint64_t z = seed + (place + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

std::uint64_t seed_of_rank(std::uint64_t seed, int rank, RandomNumbers numbers) noexcept {
  if (rank == 0 || numbers == RandomNumbers::same) { return seed; }
  return mixed_seed(~seed, static_cast<std::uint64_t>(rank));  // not those of initial values
}

RankRandom::RankRandom(std::uint64_t seed, std::optional<at::Device> cuda) {
  generators_.push_back(at::detail::createCPUGenerator());
  if (cuda) { generators_.push_back(at::globalContext().defaultGenerator(*cuda).clone()); }
  this->seed(seed);
}

std::shared_ptr<RankRandom> RankRandom::for_passes(World& world, std::uint64_t seed,
                                                   RandomNumbers numbers) {
  struct Newest {
    std::weak_ptr<RankRandom> random;
    std::uint64_t seed = 0;
  };
  thread_local Newest newest;
  if (current() != nullptr) { return nullptr; }
  const std::uint64_t of_rank = seed_of_rank(seed, world.rank(), numbers);
  std::shared_ptr<RankRandom> random = newest.random.lock();
  if (random && newest.seed == of_rank) { return random; }
  const at::Device device = device_of(world);
  random = std::make_shared<RankRandom>(of_rank,
                                        device.is_cuda() ? std::optional{device} : std::nullopt);
  newest = {random, of_rank};
  return random;
}

RankRandom* RankRandom::current() noexcept {
  // Nothing else puts anything there.
  return static_cast<RankRandom*>(c10::ThreadLocalDebugInfo::get(kCarrier));
}

const at::Generator* RankRandom::on(const at::Device& device) const noexcept {
  for (const at::Generator& generator : generators_) {
    const at::Device own = generator.device();
    if (own.type() == device.type() && (own.is_cpu() || own.index() == device.index())) {
      return &generator;
    }
  }
  return nullptr;
}

void RankRandom::seed(std::uint64_t seed) {
  for (at::Generator& generator : generators_) {
    const std::lock_guard lock{generator.mutex()};
    generator.set_current_seed(seed);
  }
}

void RankRandom::go_on_from(const ProgramRandom& program) {
  seed(program.seed);
  const std::lock_guard lock{generators_.front().mutex()};
  generators_.front().set_state(program.state);
}

void RankRandom::stand_in(const at::Device& cuda, const std::function<void()>& run_operator) {
  static std::mutex one_at_a_time;  // of the ranks that share a device
  const std::lock_guard lock{one_at_a_time};
  at::Generator own = *on(cuda);
  at::Generator shared = at::globalContext().defaultGenerator(cuda);
  const at::Tensor before = shared.get_state();
  shared.set_state(own.get_state());
  try {
    run_operator();
  } catch (...) {
    shared.set_state(before);
    throw;
  }
  own.set_state(shared.get_state());
  shared.set_state(before);
}

DrawsFrom::DrawsFrom(const std::shared_ptr<RankRandom>& random) {
  if (!random) { return; }
  interception_.emplace();
  carried_.emplace(kCarrier, random);
}

ProgramRandom random_of_program() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock{generator.mutex()};
  return {generator.current_seed(), generator.get_state()};
}

}  // namespace tessera::torch
