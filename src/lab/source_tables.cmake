# Compiles into fathom_lab what lab/source_hash.h declares. The program that writes the tables is run by every build
# (a fraction of a second); it touches its output only when a source, a table of experiments/ or the commit changed.
add_executable(write_source_tables write_source_tables.cpp source_hash.cpp source_tokens.cpp)
target_link_libraries(write_source_tables PRIVATE fathom_flags fathom_core fmt::fmt PkgConfig::xxhash)
set_target_properties(write_source_tables PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})

string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}" build_flags)
set(source_tables ${CMAKE_CURRENT_BINARY_DIR}/source_tables.cpp)
add_custom_target(source_tables
  COMMAND write_source_tables ${CMAKE_SOURCE_DIR} ${source_tables}
          "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" "${CMAKE_BUILD_TYPE}: ${build_flags}"
  BYPRODUCTS ${source_tables}
  COMMENT "Hashing the sources of experiments"
  VERBATIM)
target_sources(fathom_lab PRIVATE ${source_tables})
set_source_files_properties(${source_tables} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # it changes with every commit
add_dependencies(fathom_lab source_tables)
