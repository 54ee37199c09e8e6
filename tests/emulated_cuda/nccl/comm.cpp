#include "emulated_cuda/nccl/comm.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <set>
#include <string_view>
#include <thread>

#include "base/environment.hpp"
#include "emulated_cuda/controls.hpp"
#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/stream_task.hpp"

namespace emulated_nccl {
namespace {

using namespace std::chrono_literals;

/// Number of state queries that see a group's launch in progress on NCCL's thread.
constexpr int kLaunching = 3;
constexpr auto kForEver = 5s;

/// Work held by a graph. Calls `at_end` when the graph releases it.
class InGraph {
 public:
  InGraph(std::shared_ptr<std::atomic<int>> count, std::function<void()> at_end)
      : count_{std::move(count)}, at_end_{std::move(at_end)} {
    ++*count_;
  }
  InGraph(const InGraph&) = delete;
  InGraph& operator=(const InGraph&) = delete;
  ~InGraph() {
    at_end_();
    --*count_;
  }

 private:
  std::shared_ptr<std::atomic<int>> count_;
  std::function<void()> at_end_;
};

/// The communicators of this process.
struct Comms {
  std::mutex mutex;
  std::set<const Comm*> all;
};

Comms& comms() {
  static auto* const them = new Comms;
  return *them;
}

/// Splits begun by all communicators.
std::atomic<std::uint64_t> splits = 0;

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

}  // namespace

int own_rank() {
  return std::stoi(tessera::environment("RANK").value_or("0"));
}

std::string setting(const char* name) {
  const std::string text = tessera::environment(name).value_or("");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) { return text; }
  return text.substr(colon + 1) == std::to_string(own_rank()) ? text.substr(0, colon) : "";
}

Faults faults() {
  Faults faults;
  const std::string init = setting("TESSERA_EMULATED_NCCL_INIT");
  faults.init_fails = init == "fails";
  faults.init_hangs = init == "hangs";
  const std::string split = setting("TESSERA_EMULATED_NCCL_SPLIT");
  faults.split_fails = split == "fails";
  faults.split_hangs = split == "hangs";
  const std::string split_at = setting("TESSERA_EMULATED_NCCL_SPLIT_FAILS_AT");
  if (!split_at.empty()) { faults.split_fails_at = std::stoull(split_at); }
  const std::string at = setting("TESSERA_EMULATED_NCCL_FAILS_AT");
  if (!at.empty()) { faults.fails_at = std::stoull(at); }
  const std::string blocks = setting("TESSERA_EMULATED_NCCL_BLOCKS_AT");
  if (!blocks.empty()) { faults.blocks_at = std::stoull(blocks); }
  faults.notices_loss = setting("TESSERA_EMULATED_NCCL_LOSS") == "noticed";
  faults.abort_hangs = setting("TESSERA_EMULATED_NCCL_ABORT") == "hangs";
  return faults;
}

Comm::Comm(int rank, int ranks, int device)
    : rank_{rank}, ranks_{ranks}, device_{device}, faults_{faults()} {
  const std::scoped_lock lock{comms().mutex};
  comms().all.insert(this);
}

Comm::~Comm() {
  {
    const std::scoped_lock lock{comms().mutex};
    comms().all.erase(this);
  }
  if (memory_ != nullptr) { (void)emulated_cuda::free_device(memory_); }
}

void Comm::start(const std::string& name) {
  std::thread{[self = shared_from_this(), name] {
    while (self->faults_.init_hangs && !self->aborted_) { std::this_thread::sleep_for(1ms); }
    const auto goes_on = [&] { return !self->aborted_; };
    self->state_ = self->faults_.init_fails ? ncclSystemError : self->connect(name, goes_on);
  }}.detach();
}

ncclResult_t Comm::connect(const std::string& name, const Line::GoesOn& goes_on) {
  Hello hello;
  hello.rank = rank_;
  hello.ranks = ranks_;
  hello.device = device_;
  hello.job_rank = own_rank();
  const auto host = tessera::environment("NCCL_HOSTID");
  if (host) {
    host->copy(hello.host, sizeof hello.host - 1);
  } else {
    (void)::gethostname(hello.host, sizeof hello.host - 1);
  }
  Line line = connect_to(name);
  std::int32_t verdict = ncclSystemError;
  if (line && line.send(&hello, sizeof hello, goes_on) == Line::End::done) {
    const Line::End end = line.receive(&verdict, sizeof verdict, goes_on);
    if (end == Line::End::lost) { verdict = ncclRemoteError; }
  }
  line_ = std::move(line);
  const std::string bytes = setting("TESSERA_EMULATED_NCCL_COMM_BYTES");
  if (!bytes.empty()) { memory_ = emulated_cuda::allocate_device(device_, std::stoull(bytes)); }
  return static_cast<ncclResult_t>(verdict);
}

void Comm::split(const SplitAsk& ask, ncclComm_t* made) {
  if (busy()) { emulated_cuda::misuse("a communicator of NCCL's is split with work under way"); }
  state_ = ncclInProgress;
  own_thread_works_ = true;
  std::thread{[self = shared_from_this(), ask, made] {
    self->state_ = self->split_off(ask, made);
    self->own_thread_works_ = false;
  }}.detach();
}

ncclResult_t Comm::split_off(const SplitAsk& ask, ncclComm_t* made) {
  const std::uint64_t number = splits++;
  while (faults_.split_hangs && !aborted_) { std::this_thread::sleep_for(1ms); }
  if (faults_.split_fails || faults_.split_fails_at == number) { return ncclSystemError; }
  const auto goes_on = [this] { return !aborted_; };
  SplitAnswer answer;
  if (line_.send(&kSplits, sizeof kSplits, goes_on) != Line::End::done ||
      line_.send(&ask, sizeof ask, goes_on) != Line::End::done ||
      line_.receive(&answer, sizeof answer, goes_on) != Line::End::done) {
    // As in a call, nothing tells NCCL that a peer is gone.
    if (!faults_.notices_loss) { wait_for_abort(); }
    return ncclRemoteError;
  }
  if (answer.ranks == 0) { return ncclSuccess; }
  auto child = std::make_shared<Comm>(answer.rank, answer.ranks, device_);
  const ncclResult_t result = child->connect(answer.name, goes_on);
  child->state_ = result;
  if (result == ncclSuccess) { *made = make_handle(std::move(child)); }
  return result;
}

void Comm::wait_for_own_thread() const {
  while (own_thread_works_) { std::this_thread::sleep_for(1ms); }
}

void Comm::abort() noexcept {
  while (faults_.abort_hangs) { std::this_thread::sleep_for(1s); }
  end();
}

ncclResult_t Comm::state() {
  if (launching_ == 0) { return state_; }
  const int left = --launching_;
  return left > 0 ? ncclInProgress : state_.load();
}

ncclResult_t Comm::enqueue(std::vector<Work> works, cudaStream_t stream) {
  if (!started()) { return ncclInvalidUsage; }
  if (works.empty()) { return ncclSuccess; }
  if (emulated_cuda::stream_device(stream) != device_) { return ncclInvalidArgument; }
  if (faults_.blocks_at == tickets_) {
    wait_for_abort();
    return ncclInternalError;
  }
  if (connected_ || ranks_ == 1) { return give(std::move(works), stream); }
  connected_ = true;  // on failure the communicator fails too
  state_ = ncclInProgress;
  own_thread_works_ = true;
  std::thread{[self = shared_from_this(), works = std::move(works), stream]() mutable {
    ncclResult_t result = self->meet_peers();
    if (result == ncclSuccess) { result = self->give(std::move(works), stream); }
    self->state_ = result == ncclInProgress ? ncclSuccess : result;  // only the launch is left
    self->own_thread_works_ = false;
  }}.detach();
  return ncclInProgress;
}

/// NCCL connects to peers lazily.
ncclResult_t Comm::meet_peers() {
  const auto goes_on = [this] { return !aborted_; };
  std::byte here{};
  if (line_.send(&kConnects, sizeof kConnects, goes_on) == Line::End::done &&
      line_.receive(&here, sizeof here, goes_on) == Line::End::done && !aborted_) {
    return ncclSuccess;
  }
  if (!faults_.notices_loss) { wait_for_abort(); }  // nothing tells NCCL that a peer is gone
  return ncclRemoteError;
}

void Comm::register_window(const WindowAsk& ask, std::function<void()> there) {
  state_ = ncclInProgress;
  own_thread_works_ = true;
  std::thread{[self = shared_from_this(), ask, there = std::move(there)] {
    const ncclResult_t result = self->meet_for(ask);
    if (result == ncclSuccess) { there(); }
    self->state_ = result;
    self->own_thread_works_ = false;
  }}.detach();
}

ncclResult_t Comm::meet_for(const WindowAsk& ask) {
  const auto goes_on = [this] { return !aborted_; };
  while ((under_way_ > 0 || running_ > 0) && !aborted_) { std::this_thread::sleep_for(1ms); }
  std::byte here{};
  if (ranks_ == 1 || (line_.send(&kRegisters, sizeof kRegisters, goes_on) == Line::End::done &&
                      line_.send(&ask, sizeof ask, goes_on) == Line::End::done &&
                      line_.receive(&here, sizeof here, goes_on) == Line::End::done)) {
    return aborted_ ? ncclRemoteError : ncclSuccess;
  }
  if (!faults_.notices_loss) { wait_for_abort(); }
  return ncclRemoteError;
}

ncclResult_t Comm::give(std::vector<Work> works, cudaStream_t stream) {
  std::shared_ptr<InGraph> held;
  if (is_capturing(stream)) {
    held = std::make_shared<InGraph>(
        in_graphs_, [self = shared_from_this(), ticket = tickets_] { self->pass(ticket); });
  }
  const int counted = held ? 0 : 1;
  under_way_ += counted;
  const cudaError_t status = emulated_cuda::enqueue_library_call(
      stream, "a group of NCCL's",
      [self = shared_from_this(), ticket = tickets_, works = std::move(works),
       held = std::move(held), counted] {
        self->run(ticket, works);
        self->under_way_ -= counted;
      });
  if (status != cudaSuccess) {
    under_way_ -= counted;
    return ncclUnhandledCudaError;
  }
  ++tickets_;
  launching_ = kLaunching;
  return ncclInProgress;
}

void Comm::wait_for_graphs() const {
  const auto end = std::chrono::steady_clock::now() + kForEver;
  while (*in_graphs_ > 0) {
    if (std::chrono::steady_clock::now() > end) {
      emulated_cuda::misuse("a communicator of NCCL's ends while a graph holds its work");
    }
    std::this_thread::sleep_for(1ms);
  }
}

void Comm::wait_for_device() const {
  const auto blocks = [this](const Comm* comm) {
    const bool works = comm->under_way_ > 0 || comm->running_ > 0;
    return comm != this && comm->device_ == device_ && works && !comm->aborted_;
  };
  const auto waits = [&] {
    const std::scoped_lock lock{comms().mutex};
    return std::ranges::any_of(comms().all, blocks);
  };
  const auto end = std::chrono::steady_clock::now() + kForEver;
  while (waits()) {
    if (std::chrono::steady_clock::now() > end) {
      emulated_cuda::misuse(
          "a communicator of NCCL's is aborted while another's work waits for a peer");
    }
    std::this_thread::sleep_for(1ms);
  }
}

void Comm::run(std::uint64_t ticket, const std::vector<Work>& works) {
  ++running_;
  {
    std::unique_lock lock{mutex_};
    while (turn_ != ticket && !aborted_) { changed_.wait_for(lock, 5ms); }
  }
  if (faults_.fails_at && ticket >= *faults_.fails_at) {
    state_ = ncclSystemError;
    wait_for_abort();
  } else if (!aborted_) {
    move(works);
  }
  --running_;
  const std::scoped_lock lock{mutex_};
  end_turn_locked();
}

/// Skips the group's turn if no launch has run it.
void Comm::pass(std::uint64_t ticket) {
  const std::scoped_lock lock{mutex_};
  if (ticket > turn_) { passed_.insert(ticket); }
  if (ticket == turn_) { end_turn_locked(); }
}

void Comm::end_turn_locked() {
  ++turn_;
  while (passed_.erase(turn_) > 0) { ++turn_; }
  changed_.notify_all();
}

void Comm::move(const std::vector<Work>& works) {
  const auto goes_on = [this] { return !aborted_; };
  const std::uint64_t count = works.size();
  if (!check(line_.send(&count, sizeof count, goes_on))) { return; }
  for (const Work& work : works) {
    const std::size_t bytes = sent(work.call, rank_, ranks_) * size_of(work.call.type);
    if (!check(line_.send(&work.call, sizeof work.call, goes_on)) ||
        !check(line_.send(work.from, bytes, goes_on))) {
      return;
    }
  }
  for (const Work& work : works) {
    const std::size_t bytes = given(work.call, rank_, ranks_) * size_of(work.call.type);
    if (!check(line_.receive(work.to, bytes, goes_on))) { return; }
  }
}

/// Waits for the abort if a peer is lost, as a kernel does. Sets the error first if the double
/// notices losses.
bool Comm::check(Line::End end) {
  if (end == Line::End::lost) {
    if (faults_.notices_loss) { state_ = ncclRemoteError; }
    wait_for_abort();
  }
  return end == Line::End::done;
}

void Comm::wait_for_abort() {
  while (!aborted_) { std::this_thread::sleep_for(1ms); }
}

}  // namespace emulated_nccl

std::uint64_t emulated_nccl_splits() {
  return emulated_nccl::splits;
}
