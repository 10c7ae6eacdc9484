#!/bin/bash
# A training run as a Slurm job: sbatch examples/slurm.sh
#
# Five minutes before the time is up Slurm sends USR1 to hone, which saves a checkpoint and ends with the code 10. The job is then
# put back into the queue and goes on where it was, since the same command resumes. So it is when a rank is lost, up to MAX_RESTARTS
# times. Any other failure ends the job with its code.
#
# sbatch --nodes=1-4 examples/slurm.sh trains on as many machines as there are, with a rank on each: they share the rows of each step
# (docs/ranks.md). After a machine is lost the job goes on with those that are left. sbatch --ntasks=4 --gpus-per-node=4 trains with
# four ranks on one machine, always four. A rank has a card of its own and as many processors as below. They meet by Slurm's PMIx;
# where srun --mpi=list has none, MPI=pmi2 before sbatch.
#SBATCH --job-name=hone
#SBATCH --nodes=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --time=08:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=hone-%j.log
set -u

readonly ASKED_TO_STOP=10 RANK_LOST=12
output=${OUTPUT:-$SLURM_SUBMIT_DIR/out} # on a disk that every node sees, and that outlives the job

# srun does not take the number of processors over from sbatch. Once a rank has ended, --wait ends those that wait for it.
threads=${SLURM_CPUS_PER_TASK:-1}
ranks=${SLURM_NTASKS:-${SLURM_JOB_NUM_NODES:-1}}
flags=(--ntasks="$ranks" --cpus-per-task="$threads" --wait=600)
if [ "$ranks" -gt 1 ]; then
    flags+=(--mpi="${MPI:-pmix}")
fi

srun "${flags[@]}" hone train "${CONFIG:-run.yaml}" --output "$output" --threads "$threads"
code=$?
if [ $code -gt 128 ]; then # srun's own code where a signal has ended a rank, whatever the others end with
    code=$RANK_LOST
fi
if [ $code -eq $RANK_LOST ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "${MAX_RESTARTS:-3}" ]; then
    code=$ASKED_TO_STOP
fi
if [ $code -eq $ASKED_TO_STOP ]; then
    scontrol requeue "$SLURM_JOB_ID"
    code=0
fi
exit $code
