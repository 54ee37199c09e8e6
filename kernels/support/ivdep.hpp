#pragma once

/// Put before an element-wise loop in which no iteration reads what an earlier one writes: the
/// compiler then vectorises it without testing at run time whether its arrays overlap. Do not put
/// it before a loop that sums: clang may then change the order of the additions.
#if defined(__clang__)
#define TESSERA_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TESSERA_IVDEP _Pragma("GCC ivdep")
#endif
