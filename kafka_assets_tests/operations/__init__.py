"""Operations on tables that exist, on a real broker, real Spark and real Delta."""
