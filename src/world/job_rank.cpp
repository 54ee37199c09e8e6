#include "world/job_rank.hpp"

#include <thread>

#include "comm/control/job_end.hpp"
#include "comm/control/rank_errors.hpp"
#include "world/world_state.hpp"

namespace tessera::world {

void JobRank::run(const std::function<void(World&)>& body) {
  try {
    World world = make_world();
    try {
      body(world);
      control().check_alive();  // a body may have swallowed it
      WorldFactory::finish(world);
      meet_at_end();
    } catch (...) {  // tells the peers before the world's end waits for them
      comm::abort_with(control(), std::current_exception());
      throw;
    }
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    comm::abort_with(control(), error);  // unless it has already
    end(error);
  }
}

void JobRank::end(const std::exception_ptr& error) {
  const std::string rank = control().names().of(control().rank());
  control().give_way();
  const bool another_reports = control().another_reports();
  before_end(error);
  if (another_reports) { std::this_thread::sleep_for(comm::kCourtesy); }
  leave();
  if (another_reports && comm::is_echo(error)) {
    std::rethrow_exception(error);  // its text begins with the rank that failed
  }
  comm::rethrow_with_rank(error, rank);
}

}  // namespace tessera::world
