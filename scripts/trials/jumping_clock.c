// Preloaded by environment.py: the time of day jumps by two days from one question to the next.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

enum { kDay = 86400 };

int clock_gettime(clockid_t clock, struct timespec* at) {
  static int (*real)(clockid_t, struct timespec*);
  static unsigned calls;
  if (!real) { real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime"); }
  const int status = real(clock, at);
  if (clock == CLOCK_REALTIME) { at->tv_sec += ++calls % 2 ? kDay : -kDay; }
  return status;
}

time_t time(time_t* at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) { *at = now.tv_sec; }
  return now.tv_sec;
}
