#pragma once

/// Before an element-wise loop: no iteration reads what an earlier one writes, so the compiler
/// vectorises it and neither fears nor tests at run time that its arrays overlap. Not before a loop
/// that sums up: clang may then change the order of the additions.
#if defined(__clang__)
#define TESSERA_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TESSERA_IVDEP _Pragma("GCC ivdep")
#endif
