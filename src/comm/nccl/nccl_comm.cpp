#include "comm/nccl/nccl_comm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "comm/control/aborted.hpp"
#include "comm/control/wait_clock.hpp"
#include "comm/nccl/last_resort.hpp"
#include "device/cuda/cuda_configured.hpp"
#include "tessera/base/error.hpp"

// Missing from libraries before 2.18 (ncclCommSplit), 2.19 and 2.27 (windows): null there.
extern "C" {
[[gnu::weak]] ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                                         ncclConfig_t* config);
[[gnu::weak]] ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes,
                                            void** handle);
[[gnu::weak]] ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
#ifdef NCCL_WIN_COLL_SYMMETRIC
[[gnu::weak]] ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes,
                                                  ncclWindow_t* window, int flags);
[[gnu::weak]] ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
#endif
}

namespace tessera::comm::nccl {
namespace {

using namespace std::chrono_literals;

// NCCL's own thread launches a group within some ten microseconds, and connects to peers within
// milliseconds to seconds. A sleep takes 50 microseconds longer than requested, which every small
// batch would pay, so the thread does not sleep at first.
constexpr auto kAwake = 200us;
constexpr auto kPoll = 50us;
// A thread that is within NCCL for longer hangs there, and an abort must end that too.
constexpr auto kOthersCall = 1s;
constexpr auto kFarewell = 5s;
// A peer that has ended its communicator knows why, and tells the ranks once NCCL has let it go.
constexpr auto kCause = 2s;
// The watchdog names missing ranks: it asks for them by the deadline, for two seconds at most.
constexpr auto kWatchdogFirst = 5s;
// The first version with non-blocking communicators.
constexpr int kOldest = NCCL_VERSION(2, 14, 0);
constexpr int kFirstToSplit = NCCL_VERSION(2, 18, 1);
constexpr int kFirstToLimit = NCCL_VERSION(2, 17, 1);
constexpr int kFirstWithWindows = NCCL_VERSION(2, 27, 0);

/// Registers symmetric windows; never called if the module was built with older headers.
ncclResult_t register_as_window(ncclComm_t comm, void* data, std::size_t bytes, void** window) {
#ifdef NCCL_WIN_COLL_SYMMETRIC
  static_assert(sizeof(ncclWindow_t) == sizeof(void*));
  return ncclCommWindowRegister(comm, data, bytes, reinterpret_cast<ncclWindow_t*>(window),
                                NCCL_WIN_COLL_SYMMETRIC);
#else
  (void)comm, (void)data, (void)bytes, (void)window;
  return ncclInvalidUsage;
#endif
}

ncclResult_t deregister_window(ncclComm_t comm, void* window) {
#ifdef NCCL_WIN_COLL_SYMMETRIC
  return ncclCommWindowDeregister(comm, static_cast<ncclWindow_t>(window));
#else
  (void)comm, (void)window;
  return ncclInvalidUsage;
#endif
}

bool has_windows() {
#ifdef NCCL_WIN_COLL_SYMMETRIC
  return &ncclCommWindowRegister != nullptr && &ncclCommWindowDeregister != nullptr;
#else
  return false;
#endif
}

std::string words_of(ncclResult_t result, ncclComm_t comm) {
  const char* const more = ncclGetLastError(comm);
  std::string text = ncclGetErrorString(result);
  if (more != nullptr && *more != '\0') { text += fmt::format(" ({})", more); }
  return text;
}

}  // namespace

void check(ncclResult_t result, ncclComm_t comm, std::string_view call) {
  if (result == ncclSuccess || result == ncclInProgress) { return; }
  const char* hint = "";
  if (result == ncclInvalidUsage) {
    hint = "; check whether two ranks share a GPU, or whether their NCCL libraries differ";
  }
  throw CommError{fmt::format("{} failed: {}{}; NCCL_DEBUG=INFO says more", call,
                              words_of(result, comm), hint)};
}

device::CudaLibrary loaded_library() {
  int version = 0;
  (void)ncclGetVersion(&version);  // if it fails, the version is 0, which is too old
  return {"NCCL",
          version,
          device::file_of(reinterpret_cast<const void*>(&ncclGetVersion)),
          NCCL_VERSION_CODE,
          cuda::configured_files().nccl,
          kOldest};
}

void check_can_split(const std::string& name) {
  const device::CudaLibrary library = loaded_library();
  if (library.version >= kFirstToSplit && &ncclCommSplit != nullptr) { return; }
  throw ConfigError{
      fmt::format("split \"{}\": {}", name, device::too_old_text(library, kFirstToSplit))};
}

void check_can_limit(const CtaLimits& ctas) {
  if (ctas.least == 0 && ctas.most == 0) { return; }
  const device::CudaLibrary library = loaded_library();
  if (library.version < kFirstToLimit) {
    throw ConfigError{fmt::format("`nccl.{}_ctas`: {}", ctas.least > 0 ? "min" : "max",
                                  device::too_old_text(library, kFirstToLimit))};
  }
  // It would override what a program asks for.
  for (const char* const name : {"NCCL_MIN_CTAS", "NCCL_MAX_CTAS"}) {
    if (const auto value = environment(name)) {
      throw ConfigError{
          fmt::format("`nccl.min_ctas` and `nccl.max_ctas`: {}={} would override them: unset it",
                      name, *value)};
    }
  }
}

void check_can_register_windows() {
  const device::CudaLibrary library = loaded_library();
  if (library.built_version < kFirstWithWindows) {
    throw ConfigError{
        fmt::format("`nccl.windows`: the module was built with the headers of NCCL {}, and 2.27 is "
                    "the first that has symmetric windows: build it with a newer one",
                    device::version_text(library.built_version))};
  }
  if (library.version < kFirstWithWindows || !has_windows()) {
    throw ConfigError{"`nccl.windows`: " + device::too_old_text(library, kFirstWithWindows)};
  }
}

NcclComm::NcclComm(std::shared_ptr<TcpControlPlane> control, std::string name, CtaLimits ctas)
    : control_{std::move(control)}, name_{std::move(name)}, ctas_{ctas} {}

NcclComm::NcclComm(const ncclUniqueId& id, std::shared_ptr<TcpControlPlane> control,
                   std::string name, CtaLimits ctas)
    : NcclComm{std::move(control), std::move(name), ctas} {
  ncclConfig_t wanted = config();
  try {
    const ncclResult_t result =
        ncclCommInitRankConfig(&made_, control_->size(), id, control_->rank(), &wanted);
    comm_ = made_;
    check(result, nullptr, "ncclCommInitRankConfig");
    settle("ncclCommInitRankConfig");
  } catch (...) {
    abort_by_itself(std::current_exception());
    throw;
  }
}

ncclConfig_t NcclComm::config() const noexcept {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (ctas_.least > 0) { config.minCTAs = ctas_.least; }
  if (ctas_.most > 0) { config.maxCTAs = ctas_.most; }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = name_.c_str();
#endif
  return config;
}

// NCCL sets the new communicator when this call is complete: until then nothing is known of it.
std::unique_ptr<NcclComm> NcclComm::split(int group, int place, const std::string& name) {
  (void)state();
  half_made_.reset(new NcclComm{control_, name, ctas_});
  const std::string call = fmt::format("ncclCommSplit for \"{}\"", name);
  ncclConfig_t wanted = half_made_->config();
  {
    const std::scoped_lock lock{calls_};
    check_alive();
    check(ncclCommSplit(comm_, group, place, &half_made_->made_, &wanted), comm_, call);
  }
  settle(call);
  half_made_->comm_ = half_made_->made_;
  half_made_->settle("ncclCommSplit");
  return std::move(half_made_);
}

NcclComm::~NcclComm() {
  if (!aborted_ && !control_->failed()) { finish(); }
  abort_by_itself(nullptr);
  if (half_made_) { half_made_->comm_ = half_made_->made_; }
}

void NcclComm::finish() noexcept {
  const std::scoped_lock lock{ending_, calls_};
  if (comm_ == nullptr) { return; }
  ncclResult_t result = ncclCommFinalize(comm_);
  Patience patience{kFarewell};
  while (result == ncclSuccess || result == ncclInProgress) {
    if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess || result != ncclInProgress) { break; }
    if (patience.over()) { return; }
    std::this_thread::sleep_for(1ms);
  }
  if (result != ncclSuccess) { return; }
  (void)ncclCommDestroy(comm_.exchange(nullptr));
}

void NcclComm::abort(const std::exception_ptr& why) noexcept {
  const std::scoped_lock ending{ending_};
  if (!aborted_) { why_ = why; }
  aborted_ = true;
  std::unique_lock calls{calls_, std::defer_lock};
  const bool alone = calls.try_lock_for(kOthersCall);
  ncclComm_t const comm = comm_.exchange(nullptr);
  if (alone) { calls.unlock(); }  // a thread that calls now finds it ended, and does not wait
  if (comm != nullptr) { (void)ncclCommAbort(comm); }
}

/// Used where no watchdog supervises the abort.
void NcclComm::abort_by_itself(const std::exception_ptr& why) noexcept {
  const auto patience = abort_time(control_->failed(), control_->deadline());
  const auto text = [&] {
    return fmt::format(
        "{}: {}ncclCommAbort of NCCL's communicator {} has not returned within {} s, so the "
        "process ends",
        control_->names().of(control_->rank()), why ? reason_of(why) + "; " : "", name_,
        patience.count() / 1000);
  };
  const LastResort resort{text, patience};
  abort(why);
}

void NcclComm::check_alive() const {
  if (!aborted_ && comm_ != nullptr) { return; }
  control_->check_alive();
  throw Aborted{ended_text()};
}

std::string NcclComm::ended_text() const {
  try {
    if (aborted_ && why_) { std::rethrow_exception(why_); }
  } catch (const std::exception& error) {
    return fmt::format(
        "NCCL's communicator {} was ended, like all of the rank's: {}; a rank that withdraws work "
        "in progress can make no more calls",
        name_, error.what());
  }
  return fmt::format("NCCL's communicator {} was ended", name_);
}

ncclResult_t NcclComm::state() {
  const std::scoped_lock lock{calls_};
  check_alive();
  ncclResult_t result = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &result), comm_, "ncclCommGetAsyncError");
  return result;
}

void NcclComm::await_cause() const {
  for (Patience patience{kCause}; !patience.over(); std::this_thread::sleep_for(1ms)) {
    control_->check_alive();
  }
}

void NcclComm::settle(std::string_view call) {
  settle(call, control_->deadline(), [] { return false; });
}

void NcclComm::settle(std::string_view call, std::chrono::milliseconds patience,
                      const std::function<bool()>& excused) {
  WaitClock clock{patience};
  auto begin = clock.now();
  for (;;) {
    const ncclResult_t result = state();
    if (result == ncclRemoteError) { await_cause(); }
    if (result != ncclInProgress) { return check(result, comm_, call); }
    control_->check_alive();
    const auto waited = clock.now() - begin;
    if (waited > patience) {
      begin = clock.now();
      if (excused()) { continue; }
      throw CommError{fmt::format(
          "{} of NCCL's communicator {} has not ended within {} ms: ranks cannot reach each other; "
          "NCCL_DEBUG=INFO says more, NCCL_SOCKET_IFNAME chooses the network",
          call, name_, patience.count())};
    }
    if (waited < kAwake) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPoll);
    }
  }
}

void NcclComm::issue(const std::function<void(ncclComm_t)>& calls,
                     const std::function<bool()>& device_is_behind) {
  (void)state();
  {
    const std::scoped_lock lock{calls_};
    check_alive();
    check(ncclGroupStart(), comm_, "ncclGroupStart");
    try {
      calls(comm_);
    } catch (...) {
      (void)ncclGroupEnd();
      throw;
    }
    const ncclResult_t result = ncclGroupEnd();
    check_alive();  // a communicator that was ended within the call has no other reason to fail
    check(result, comm_, "ncclGroupEnd");
  }
  settle("ncclGroupEnd", control_->deadline() + kWatchdogFirst, device_is_behind);
}

void* NcclComm::register_memory(void* data, std::size_t bytes) {
  (void)state();
  const std::scoped_lock lock{calls_};
  check_alive();
  void* handle = nullptr;
  check(ncclCommRegister(comm_, data, bytes, &handle), comm_, "ncclCommRegister");
  return handle;
}

void* NcclComm::register_window(void* data, std::size_t bytes) {
  constexpr const char* kCall = "ncclCommWindowRegister";
  (void)state();
  void** window = nullptr;
  {
    const std::scoped_lock lock{calls_};
    check_alive();
    window = &windows_.emplace_back(nullptr);
    check(register_as_window(comm_, data, bytes, window), comm_, kCall);
  }
  settle(kCall);
  return *window;
}

// A call in progress may still read the memory.
ncclResult_t NcclComm::deregister_locked(void* handle, Registration how) noexcept {
  if (how == Registration::buffer) { return ncclCommDeregister(comm_, handle); }
  ncclResult_t result = deregister_window(comm_, handle);
  Patience patience{kFarewell};
  while (result == ncclInProgress && !patience.over()) {
    if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) { break; }
    std::this_thread::yield();
  }
  return result;
}

void NcclComm::deregister(void* handle, Registration how) noexcept {
  {
    const std::scoped_lock lock{calls_};
    if (comm_ != nullptr && !aborted_) {
      (void)deregister_locked(handle, how);
      return;
    }
  }
  // The communicator is ending, which deregisters: the memory stays until then.
  std::unique_lock lock{ending_, std::defer_lock};
  (void)lock.try_lock_for(kFarewell);
}

std::string NcclComm::fault() noexcept {
  std::unique_lock lock{calls_, std::try_to_lock};
  if (!lock || aborted_ || comm_ == nullptr) { return {}; }
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
  if (asked != ncclSuccess) { result = asked; }
  if (result == ncclSuccess || result == ncclInProgress) { return {}; }
  try {
    return fmt::format("NCCL's communicator {} has failed: {}; NCCL_DEBUG=INFO says more", name_,
                       words_of(result, comm_));
  } catch (const std::exception&) { return "NCCL has failed"; }
}

}  // namespace tessera::comm::nccl
