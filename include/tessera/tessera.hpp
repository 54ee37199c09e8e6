#pragma once

// Everything a trainer at the pointer level needs. Layers with forward and backward are in
// tessera/nn, datasets in tessera/data, files of weights in tessera/checkpoint.

#include "tessera/base/error.hpp"
#include "tessera/engine/init.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/engine/strategy.hpp"
#include "tessera/memory/tracker.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/profile/job_memory.hpp"
#include "tessera/profile/ledger.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/world/launch.hpp"
#include "tessera/world/mean.hpp"
#include "tessera/world/mesh.hpp"
#include "tessera/world/print.hpp"
#include "tessera/world/run.hpp"
