# What the sessions of several chapters share; each includes this, so that any of them can be built alone.
include_guard(GLOBAL)
add_library(fathom_engine_session STATIC ${CMAKE_CURRENT_LIST_DIR}/engine_session.cpp)
target_link_libraries(fathom_engine_session
  PUBLIC fathom_serve fathom_engine fathom_lab PRIVATE fathom_cli fathom_flags)
