# cmake -DSOURCE=DIR -DFILE=commit.cc -P commit.cmake: writes the commit of the source into a C++ file, where it is another.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
# A source archive inside of another repository has not that one's commit.
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel
  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
get_filename_component(source ${SOURCE} REALPATH)
if(failed OR NOT commit MATCHES "^[0-9a-f]+(-dirty)?$" OR NOT top STREQUAL source)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "#include \"cli/version.h\"
namespace situ::cli {
const char* const kCommit = \"${commit}\";
}
")
