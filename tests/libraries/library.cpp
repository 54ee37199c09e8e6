// A library that reports its place. check_libraries.cmake sets FUNCTION and PLACE.
extern "C" const char* FUNCTION();

const char* FUNCTION() {
  return PLACE;
}
