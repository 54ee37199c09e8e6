#pragma once

namespace tessera::tools {

/// `tessera doctor`: prints what this machine and this build have, and what is missing.
void doctor();

}  // namespace tessera::tools
