# Shared by the sessions of several chapters; each chapter includes this, so that it can be built alone.
include_guard(GLOBAL)
add_library(fathom_engine_session STATIC ${CMAKE_CURRENT_LIST_DIR}/engine_session.cpp)
target_link_libraries(fathom_engine_session
  PUBLIC fathom_load fathom_engine fathom_model fathom_lab PRIVATE fathom_flags)
