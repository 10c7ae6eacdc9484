# Runs cmake/signatures.cmake over texts of kernels: cmake -DSCRIPT=... -DWORK=... -P signatures.cmake
cmake_minimum_required(VERSION 3.22)

function(run text)
    file(WRITE ${WORK}/kernel.kl "${text}")
    file(REMOVE ${WORK}/out.h)
    execute_process(COMMAND ${CMAKE_COMMAND} -DOUTPUT=${WORK}/out.h -DFILES=${WORK}/kernel.kl,${ARGN} -P ${SCRIPT}
                    RESULT_VARIABLE code ERROR_VARIABLE words)
    string(REGEX REPLACE "[ \n]+" " " words "${words}")     # messages are wrapped
    set(code ${code} PARENT_SCOPE)
    set(words "${words}" PARENT_SCOPE)
endfunction()

# The build stops at this line, saying this.
function(refused line says text)
    run("${text}" ${ARGN})
    if(code EQUAL 0 OR EXISTS ${WORK}/out.h)
        message(SEND_ERROR "this was taken as a signature: ${text}")
    elseif(NOT words MATCHES "kernel.kl:${line}: [^:]*${says}" AND NOT words MATCHES "kernel.kl:${line}: '[^']*': [^:]*${says}")
        message(SEND_ERROR "line ${line}, '${says}' expected: ${words}")
    endif()
endfunction()

set(good "/* [a; b] */\nKERNEL(good_one)(OPERAND(0, x), OPERAND(1, dy),\n    i64 rows, i64 T, i64 n_2, float eps)\n{\n    int a[2];\n}\n")
run("${good}#ifdef B\nKERNEL(other)(OPERAND(0, x), i64 rows)\n{\n}\n#endif\n")
if(NOT code EQUAL 0)
    message(FATAL_ERROR "${words}")
endif()
file(READ ${WORK}/out.h header)
foreach(line "SIGNATURE_good_one .name = \"good_one\", .file = \"kernel\", .operands = 2, .sizes = 2, .numbers = 1\n"
        "ARGUMENTS_good_one(operand, rows, size, number) operand(0), operand(1), rows, size(0), size(1), number(0)\n"
        "SIGNATURE_other .name = \"other\", .file = \"kernel\", .operands = 1, .sizes = 0, .numbers = 0\n")
    string(FIND "${header}" "${line}" at)
    if(at EQUAL -1)
        message(SEND_ERROR "'${line}' is not in: ${header}")
    endif()
endforeach()

refused(8 "operand 2 stands where operand 1 should" "${good}\nKERNEL(bad)(OPERAND(0, x), OPERAND(2, y), i64 rows)\n{\n}\n")
refused(1 "i64 rows after its operands" "KERNEL(bad)(OPERAND(0, x))\n{\n}\n")
refused(1 "a kernel takes" "KERNEL(bad)(OPERAND(0, x), i64 T, i64 rows)\n{\n}\n")
refused(2 "a kernel takes" "\nKERNEL(bad)(OPERAND(0, x), i64 rows, float eps, i64 T)\n{\n}\n")
refused(1 "a kernel takes" "KERNEL(bad)(OPERAND(0, x), i64 rows, int T)\n{\n}\n")
refused(1 "a kernel takes" "KERNEL(bad)(OPERAND(0, x), i64 rows, OPERAND(1, y))\n{\n}\n")
refused(1 "without a name, arguments and a body" "KERNEL(bad)(OPERAND(0, x), i64 rows);\n")
refused(1 "without a name, arguments and a body" "KERNEL(bad)\n{\n}\n")
refused(7 "another kernel good_one" "${good}KERNEL(good_one)(OPERAND(0, x), i64 rows)\n{\n}\n")

# The host's rows take the counts from here.
file(GLOB rows ${SOURCES}/ops/*.[ch] ${SOURCES}/device/*.c)
foreach(file ${rows})
    file(READ ${file} text)
    if(text MATCHES "\\.(operands|sizes|numbers) = ")
        message(SEND_ERROR "${file}: the counts of a kernel are its text's: SIGNATURE_<name>")
    endif()
endforeach()
